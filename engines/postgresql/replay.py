"""How long a recovery may take under settings that let the log grow, told from a short run.

A short run's log is mostly images of whole pages: each page is written whole when it is first changed after
a checkpoint has begun (manual, full_page_writes). An image is copied, a record is applied, so a byte of an
image takes a small part of the time of a byte of a record. A long log has many more records and hardly more
images, so it takes longer than its bytes tell: of a default pair's 922 MiB, really filled, recovery took
3.5 to 4.7 times what bytes alone had predicted, and 0.9 to 1.4 times what this rule predicts
(docs/recovery.md).
"""

from __future__ import annotations

from collections.abc import Mapping

from engines.engine import LongestReplay, Replay

IMAGE_BYTE_COST = 0.07
"""The time of a byte of a page image over that of a byte of a record, as fitted on the fillings of
docs/recovery.md; single estimates of it scatter from 0 to 0.5."""
ROUNDS_OF_IMAGES = 2.0
"""The longest distance reaches over the begins of two checkpoints, after each of which pages come whole."""
_MIB = 1 << 20


def longest(settings: Mapping[str, str], seen: Replay) -> LongestReplay:
    """The longest replay under these settings (in base units, as pg_settings prints them)."""
    log_bytes = longest_log(settings, seen)
    return LongestReplay(log_bytes, redo_s(seen, log_bytes))


def longest_log(settings: Mapping[str, str], seen: Replay) -> int:
    """How much log these settings let a recovery replay, by a load that writes records at the rate seen.

    A checkpoint begins when max_wal_size / (1 + checkpoint_completion_target) has been written since the
    last one (xlog.c, CalculateCheckpointSegments) or when checkpoint_timeout has passed, and lasts for
    checkpoint_completion_target of the way to the next. A crash at its end replays both stretches.
    """
    seconds = int(settings["checkpoint_timeout"]) * (1.0 + float(settings["checkpoint_completion_target"]))
    records_per_s = (seen.log_bytes - seen.image_bytes) / seen.written_s
    by_time = seconds * records_per_s + ROUNDS_OF_IMAGES * seen.image_bytes
    by_volume = int(settings["max_wal_size"]) * _MIB
    return max(seen.log_bytes, int(min(by_volume, by_time)))


def redo_s(seen: Replay, log_bytes: int) -> float:
    """How long the replay of so much log takes, with two rounds of page images as large as the one seen."""
    images = min(ROUNDS_OF_IMAGES, log_bytes / seen.log_bytes) * seen.image_bytes
    return seen.redo_s * _work(log_bytes, images) / _work(seen.log_bytes, seen.image_bytes)


def _work(log_bytes: float, image_bytes: float) -> float:
    """In the time of a byte of a record."""
    return log_bytes - image_bytes + IMAGE_BYTE_COST * image_bytes
