"""A candidate that PostgreSQL or this host does not take is rejected with the reason: the study goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tuner.kinds.family import Size
from tuner.options import Asked
from tuner.request import host_limits, open_lab, resolve_asked
from tuner.search.study_plan import default_trial_plan
from tuner.search.trial import REJECTED, TrialRunner

pytestmark = [pytest.mark.usefixtures("native_parts", "postgresql"), pytest.mark.slow]


def test_what_cannot_start_is_rejected_with_the_reason(tmp_path: Path) -> None:
    request = resolve_asked(Asked("postgresql", seed=5), Size(1_000, 1))
    too_much = str(2 * host_limits().memory_bytes // 8192)
    cases = {
        "shared_buffers": (too_much, ("more than", "shared_buffers")),
        "huge_pages": ("on", ("huge_pages",)),
        "wal_level": ("minimal", ("max_wal_senders",)),
    }
    with open_lab(request, tmp_path, None) as (lab, bound, _):
        # No reference is asked for where nothing was measured.
        runner = TrialRunner(lab, bound, default_trial_plan(0.2), cast("Any", None), [])
        for number, (name, (value, words)) in enumerate(cases.items()):
            result = runner.run(number, tmp_path, {name: value}, "tpe", 1.0)
            assert result.verdict == REJECTED and result.ratio == 0.0, result
            assert all(word in result.why for word in words), result.why
