from __future__ import annotations

import os
import re

from engines.identity import ProcessIdentity, boot_id, identify, own_identity
from tests.engines_tests.programs import SLEEP, python, running


def test_own_identity_is_alive() -> None:
    assert own_identity().pid == os.getpid()
    assert own_identity().alive()


def test_another_start_time_is_another_process() -> None:
    own = own_identity()
    assert not ProcessIdentity(own.pid, own.start_ticks + 1).alive()


def test_a_zombie_has_ended() -> None:
    with running(python(SLEEP)) as process:
        identity = identify(process.pid)
        assert identity is not None and identity.alive()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert identify(process.pid) == identity  # Not reaped: it still has its entry.
        assert not identity.alive()
    assert identify(process.pid) is None


def test_a_name_with_parentheses_and_spaces_is_read() -> None:
    rename = "import time; open('/proc/self/comm', 'w').write('a) S (b c'); print('up', flush=True)"
    rename += "; time.sleep(60)"
    with running(python(rename)) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        identity = identify(process.pid)
        assert identity is not None and identity.alive()


def test_boot_id_is_hexadecimal() -> None:
    assert re.fullmatch("[0-9a-f]{32}", boot_id())
