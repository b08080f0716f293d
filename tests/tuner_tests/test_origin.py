"""The provenance of a result names what was run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.kinds.family import Size
from tuner.options import Asked
from tuner.origin import origin
from tuner.request import resolve_asked

pytestmark = pytest.mark.usefixtures("native_parts", "postgresql")


def test_the_settings_are_those_that_are_in_force(tmp_path: Path) -> None:
    """A private cluster has no standby; what was asked for is in the finding."""
    sets = ["synchronous_standby_names=*", "work_mem=8MB"]
    request = resolve_asked(Asked("postgresql", sets=sets), Size(1_000, 1))
    found = origin(request, tmp_path)
    assert found["settings"] == {"synchronous_standby_names": "", "work_mem": "8192"}
    (finding,) = request.findings
    assert finding.in_words == "synchronous_standby_names=*" and "'' is used" in finding.why
    assert finding.failure == "failover"


def test_every_setting_of_rocksdb_is_in_force(tmp_path: Path) -> None:
    request = resolve_asked(Asked("rocksdb", sets=["WriteOptions.sync=true"]), Size(1_000, 1))
    assert origin(request, tmp_path)["settings"] == {"WriteOptions.sync": "true"}
