"""What was in force in the session that ran a load, as a text that is kept with the run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath

from engines.postgresql.readback import AUTO_FILE, Difference, Effective, Readback, RoleSetting
from knobs.finding import Finding

MANUAL_ROLE, MANUAL_SYSTEM = "sql-alterrole.html", "sql-altersystem.html"
ALTER_SYSTEM = "ALTER SYSTEM"
_FROM_ELSEWHERE = ("global", "database", "user", "database user", "client", "session")


@dataclass(frozen=True)
class SessionSettings:
    """``values`` are in base units, as pg_settings prints them; ``differences`` are the proposed settings
    that were not in force; ``elsewhere`` those that no configuration file states, with their source;
    ``role_settings`` are those of its role and database."""

    values: Mapping[str, str]
    differences: Sequence[Difference]
    elsewhere: Mapping[str, str]
    role_settings: Sequence[RoleSetting]
    file_errors: Sequence[str]

    @staticmethod
    def of(readback: Readback, differences: Sequence[Difference]) -> SessionSettings:
        """What a read-back found."""
        return SessionSettings(
            values=readback.values(),
            differences=tuple(differences),
            elsewhere={
                name: ALTER_SYSTEM if _is_altered(setting) else setting.source
                for name, setting in readback.settings.items()
                if _is_altered(setting)
                or (setting.source in _FROM_ELSEWHERE and setting.value != setting.boot_value)
            },
            role_settings=tuple(
                each
                for each in readback.role_settings
                if each.role in ("", readback.role) and each.database in ("", readback.database)
            ),
            file_errors=tuple(f"{error.name}: {error.error}" for error in readback.file_errors),
        )

    def text(self) -> str:
        """The text that `parse` reads."""
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def parse(text: str) -> SessionSettings:
        """Read what `text` wrote."""
        found = json.loads(text)
        return SessionSettings(
            values=found["values"],
            differences=tuple(Difference(**each) for each in found["differences"]),
            elsewhere=found["elsewhere"],
            role_settings=tuple(RoleSetting(**each) for each in found["role_settings"]),
            file_errors=tuple(found["file_errors"]),
        )

    def findings(self) -> list[Finding]:
        """One finding for each difference, and for each setting that a role or database adds."""
        found = [
            Finding("not-in-force", each.name, each.proposed, "", "nothing", _what(each), "read back")
            for each in self.differences
        ]
        named = {each.name for each in self.differences}
        for setting in self.role_settings:
            if setting.name in self.elsewhere and setting.name not in named:
                found.append(
                    Finding(
                        "set-by-role",
                        setting.name,
                        setting.value,
                        "",
                        "nothing by itself",
                        f"{_place(setting)} sets it for the session that runs the load, whatever the "
                        "server's files say",
                        MANUAL_ROLE,
                    )
                )
        found += [
            Finding(
                "set-by-alter-system",
                name,
                self.values[name],
                "",
                "nothing by itself",
                "ALTER SYSTEM has set it, in postgresql.auto.conf of the loaded cluster",
                MANUAL_SYSTEM,
            )
            for name, source in self.elsewhere.items()
            if source == ALTER_SYSTEM and name not in named
        ]
        found += [
            Finding("refused-line", error.partition(":")[0], "", "", "nothing", error, "pg_file_settings")
            for error in self.file_errors
        ]
        return found


def _is_altered(setting: Effective) -> bool:
    return PurePath(setting.file).name == AUTO_FILE


def _what(difference: Difference) -> str:
    got = "nothing" if difference.effective is None else difference.effective
    return f"{got} is in force: {difference.why}"


def _place(setting: RoleSetting) -> str:
    role = f"ALTER ROLE {setting.role}" if setting.role else ""
    database = f"DATABASE {setting.database}" if setting.database else ""
    if role and database:
        return f"{role} IN {database}"
    return role or (f"ALTER {database}" if database else "ALTER ROLE ALL")
