from __future__ import annotations

from pathlib import Path

import pytest

from engines.lock import LOCK_NAME, exclusive
from knobs.errors import InvalidInput
from tests.engines_tests.programs import first_line, python, running

HOLDER = """
import sys, time
from pathlib import Path
from engines.lock import exclusive
with exclusive(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_one_at_a_time_and_the_holder_is_named(tmp_path: Path) -> None:
    with running(python(HOLDER, str(tmp_path))) as process:
        assert first_line(process) == "locked"
        with (
            pytest.raises(InvalidInput, match=f"in use by process {process.pid} .* since 2") as caught,
            exclusive(tmp_path),
        ):
            pass
        assert caught.value.where == str(tmp_path) and caught.value.hint
        process.kill()
        process.wait()
        # The dead holder's words are still in the file; the lock is not.
        assert str(process.pid) in (tmp_path / LOCK_NAME).read_text()
        with exclusive(tmp_path):
            pass


def test_it_is_free_after_an_exception(tmp_path: Path) -> None:
    with pytest.raises(KeyError), exclusive(tmp_path):
        raise KeyError
    with exclusive(tmp_path):
        pass


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}'])
def test_a_damaged_lock_file_is_no_obstacle_and_no_crash(tmp_path: Path, content: str) -> None:
    (tmp_path / LOCK_NAME).write_text(content)
    with exclusive(tmp_path):
        (tmp_path / LOCK_NAME).write_text(content)
        with pytest.raises(InvalidInput, match="in use by another process"), exclusive(tmp_path):
            pass


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be locked"), exclusive(tmp_path / "none"):
        pass
