"""What is done to a server before a load runs on it, and asked of it where a client of it failed."""

from __future__ import annotations

import re
import time

from engines.postgresql import readback
from engines.postgresql.server import Server
from engines.postgresql.session import Session, StatementFailed
from engines.postgresql.session_settings import SessionSettings
from knobs.errors import InvalidInput
from knobs.postgresql import catalogue

EACH_BEFORE = 25
"""Transactions of every client by which a recorded run begins: the engine's count of syncs is read when
their sessions have ended, for it is brought up to date only then."""
FIRST_LOAD_DEADLINE_S = 60.0
LOST_S, POLL_S = 5.0, 0.005
"""How long a server has to show why a connection to it was lost."""
_LOST = re.compile(
    r"backend died|server closed the connection|postmaster exit|crash of another server process"
)
_NO_EXTENSION = ("58P01", "0A000")
_ENDS_STATEMENTS = {
    "read-only transaction": "default_transaction_read_only",
    "due to statement timeout": "statement_timeout",
    "due to lock timeout": "lock_timeout",
    "due to idle-in-transaction timeout": "idle_in_transaction_session_timeout",
    "due to transaction timeout": "transaction_timeout",
    "exceeds temp_file_limit": "temp_file_limit",
    "too many clients already": "max_connections",
}
"""What PostgreSQL 13 to 18 says of a statement that a setting forbids or ends, and the setting."""


def settings_in_force(server: Server) -> str:
    """What is in force in a session like the load's, and where that is not what was proposed, as a text.

    Raises InvalidInput where a setting ends the look at it.
    """
    known = catalogue.load(str(server.cluster.binaries.version.major))
    with Session(server.address, is_clients=True) as session:
        try:
            found = readback.read(session)
        except StatementFailed as error:
            hint = setting_to_blame(error.what)
            if not hint:
                raise
            raise InvalidInput(
                f"under these settings no session can tell what is in force: {error.what}",
                where="pg_settings",
                hint=hint,
            ) from error
    different = readback.compare(server.configuration.proposed, found, known.normalise)
    return SessionSettings.of(found, different).text()


def add_amcheck(server: Server) -> None:
    """Create the extension by which a recovered cluster is verified, where the installation has it.

    Not every one has the contributed modules; verification says what it did without. It lies in the schema
    that every session looks through first, whatever search_path the user's SQL gives to the database.
    """
    with Session(server.address) as session:
        try:
            session.query("CREATE EXTENSION IF NOT EXISTS amcheck WITH SCHEMA pg_catalog")
        except StatementFailed as error:
            if error.sqlstate not in _NO_EXTENSION:
                raise


def setting_to_blame(said: str) -> str:
    """What to do about a statement that failed in these words; "" where no setting is known to be why."""
    found = [setting for words, setting in _ENDS_STATEMENTS.items() if words in said]
    return f"{found[0]} is what ends it: set another value, or leave it out" if found else ""


def check_behind(server: Server, said: str) -> None:
    """Raise ServerDied where it is the server that failed, and not the client that ``said`` this.

    A connection is lost a moment before its server has ended, or has said which process died.
    """
    server.check()
    ends_s = time.monotonic() + (LOST_S if _LOST.search(said) else 0.0)
    while time.monotonic() < ends_s:
        time.sleep(POLL_S)
        server.check()
