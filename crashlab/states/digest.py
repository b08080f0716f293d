"""When two images are the same to recovery: one number for each content, without writing it anywhere.

Equal digests mean equal content: the same changes survive, as far, in the same files under the same names, of
all that recovery reads. The other way round it need not be so: two different writes may leave the same bytes,
and are recovered twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from crashlab.recording.write_log import Kind
from crashlab.states.disk import FileImage, Image, Surviving, size_after, written_bytes, written_ranges

DIGEST_BYTES = 16


def digest(image: Image, reads: Callable[[str], bool]) -> bytes:
    """One for each content; ``reads`` tells of which files and folders recovery reads any."""
    whole = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for folder in sorted(filter(reads, image.folders)):
        whole.update(b"%s\0" % folder.encode("utf-8", "surrogateescape"))
    for path in sorted(filter(reads, image.files)):
        whole.update(b"\0%s\0" % path.encode("utf-8", "surrogateescape"))
        whole.update(_file(image.files[path]))
    return whole.digest()


def _file(image: FileImage) -> bytes:
    """The file, its size where the survivors do not give it, and which of its changes survive how far."""
    size = -1 if image.size is None or image.size == _natural_size(image) else image.size
    words = [image.file.number, size, len(image.survivors)]
    words += [survivor.operation.begin for survivor in image.survivors]
    for place, survivor in enumerate(image.survivors):
        for begin, end in _parts(survivor):
            words += [place, begin, end]
    return np.array(words, dtype=np.int64).tobytes()


def _parts(survivor: Surviving) -> list[tuple[int, int]]:
    """The ranges that survive of a write that does not survive wholly, adjacent ones as one."""
    if survivor.ranges is None or survivor.operation.kind is not Kind.WRITE:
        return []
    joined: list[tuple[int, int]] = []
    for begin, end in survivor.ranges:
        if joined and joined[-1][1] == begin:
            begin = joined.pop()[0]
        joined.append((begin, end))
    operation = survivor.operation
    return [] if joined == [(operation.a, operation.a + written_bytes(operation))] else joined


def _natural_size(image: FileImage) -> int:
    """What the survivors make of the base's size."""
    size = image.file.base.size if image.file.base is not None else 0
    for survivor in image.survivors:
        if survivor.operation.kind is Kind.WRITE:
            size = max([size, *(end for _, end in written_ranges(survivor))])
        else:
            size = size_after(size, survivor.operation)
    return size
