"""What was in force in the load's session: kept as a text, read again, and told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.postgresql.readback import Effective, FileError, Readback, RoleSetting, compare
from engines.postgresql.session_settings import SessionSettings
from knobs.finding import Finding

PROPOSED = {"synchronous_commit": "on", "work_mem": "8MB"}


def effective(name: str, value: str, source: str, boot: str) -> Effective:
    is_in_file = source == "configuration file"
    return Effective(
        name,
        value,
        "",
        "enum",
        "user",
        source,
        "/x/postgresql.conf" if is_in_file else "",
        2 if is_in_file else 0,
        boot,
        value,
        False,
    )


def found(source: str, *role_settings: RoleSetting, value: str = "off") -> Readback:
    """The load's session as ``source`` has set synchronous_commit for it."""
    return Readback(
        "postgres",
        "postgres",
        {
            "synchronous_commit": effective("synchronous_commit", value, source, "on"),
            "work_mem": effective("work_mem", "8192", "configuration file", "4096"),
            "application_name": effective("application_name", "load", "client", ""),
        },
        [],
        role_settings,
    )


def findings(readback: Readback, proposed: dict[str, str] | None = None) -> list[Finding]:
    differences = compare(proposed or {}, readback, lambda _, value: value.replace("8MB", "8192"))
    return SessionSettings.of(readback, differences).findings()


OF_THE_ROLE = RoleSetting("", "postgres", "synchronous_commit", "off")
REFUSED = FileError("/x/postgresql.conf", 3, "work_mem", "8 cats", 'invalid value for "work_mem"')


def test_what_is_kept_is_read_again() -> None:
    readback = replace(found("user", OF_THE_ROLE), file_errors=[REFUSED])
    kept = SessionSettings.of(readback, compare(PROPOSED, readback))
    again = SessionSettings.parse(kept.text())
    assert again == kept and again.findings() == kept.findings()
    assert again.values == {"synchronous_commit": "off", "work_mem": "8192", "application_name": "load"}
    assert again.elsewhere == {"synchronous_commit": "user", "application_name": "client"}


def test_a_proposed_setting_that_a_role_overrules_is_not_in_force_and_the_role_is_named() -> None:
    (finding,) = findings(found("user", OF_THE_ROLE), PROPOSED)
    assert (finding.rule, finding.setting, finding.value) == ("not-in-force", "synchronous_commit", "on")
    assert "off is in force" in finding.why and "role postgres: synchronous_commit=off" in finding.why


@pytest.mark.parametrize(
    ("source", "database", "role", "words"),
    [
        ("user", "", "postgres", "ALTER ROLE postgres sets it"),
        ("database", "postgres", "", "ALTER DATABASE postgres sets it"),
        ("database user", "postgres", "postgres", "ALTER ROLE postgres IN DATABASE postgres sets it"),
        ("global", "", "", "ALTER ROLE ALL sets it"),
    ],
)
def test_what_nobody_proposed_and_a_role_sets_is_named(
    source: str, database: str, role: str, words: str
) -> None:
    (finding,) = findings(found(source, RoleSetting(database, role, "synchronous_commit", "off")))
    assert (finding.rule, finding.setting, finding.value) == ("set-by-role", "synchronous_commit", "off")
    assert words in finding.why and finding.source == "sql-alterrole.html"


def test_what_another_role_or_database_has_is_not_the_loads() -> None:
    others = (
        RoleSetting("", "other", "synchronous_commit", "local"),
        RoleSetting("other", "", "synchronous_commit", "local"),
        RoleSetting("other", "postgres", "synchronous_commit", "local"),
    )
    assert findings(found("configuration file", *others, value="on")) == []
    (finding,) = findings(found("user", *others, OF_THE_ROLE))
    assert finding.why.startswith("ALTER ROLE postgres sets it")


def test_a_role_that_sets_what_is_the_default_anyway_adds_nothing() -> None:
    at_default = RoleSetting("", "postgres", "synchronous_commit", "on")
    assert findings(found("user", at_default, value="on")) == []


def test_what_alter_system_has_set_is_named() -> None:
    altered = replace(
        effective("fsync", "off", "configuration file", "on"), file="/x/postgresql.auto.conf", line=3
    )
    readback = found("default", value="on")
    readback = replace(readback, settings={**readback.settings, "fsync": altered})
    (told,) = findings(readback)
    assert (told.rule, told.setting, told.value) == ("set-by-alter-system", "fsync", "off")
    (proposed,) = findings(readback, {"fsync": "on"})
    assert proposed.rule == "not-in-force" and "ALTER SYSTEM wins" in proposed.why


def test_a_line_that_the_server_refused_is_told() -> None:
    readback = replace(found("default", value="on"), file_errors=[REFUSED])
    (finding,) = findings(readback)
    assert (finding.rule, finding.setting) == ("refused-line", "work_mem")
    assert finding.why == 'work_mem: invalid value for "work_mem"'
