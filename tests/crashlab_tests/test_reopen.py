"""What a clean reopen of the loaded base shows, before anything crashes."""

from __future__ import annotations

import pytest

from crashlab.reopen import missing_after_reopen
from crashlab.subject import Subject
from tests.engines_tests.postgresql_engines import open_postgresql
from workloads.pgbench.workload import PgbenchWorkload

# The index holds what the function said then; asked again, it says something else.
LIES = """
CREATE FUNCTION lies(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN random() * 1e9; END $$;
CREATE INDEX lying ON pgbench_branches (lies(bid));
"""


@pytest.mark.slow
@pytest.mark.parametrize(("init_sql", "words"), [("", ""), (LIES, "before any crash: amcheck: ")])
def test_a_base_whose_index_lies_by_itself_is_told(init_sql: str, words: str) -> None:
    with open_postgresql() as lab:
        workload = PgbenchWorkload("pgbench:simple-update").with_options(init_sql=init_sql)
        subject = Subject(lab.engine, workload, {}, threads=2)
        base = lab.place("base")
        workload.load(subject.launch(base), base, 1)
        told = missing_after_reopen(subject, base / "db", lab.scratch, lab.folder)
    assert words in told and bool(told) is bool(words)
    assert ('index "lying"' in told) is bool(words)
