"""YCSB as the commands ask for it: its properties, counts and threads, and how much it loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from crashlab.judging.verdict import LostWrite
from engines.process import Watcher
from knobs.errors import InvalidInput
from knobs.finding import Finding
from tuner.kinds.family import Described, Made, Size
from tuner.options import CLIENTS_MAX, SCALE_MAX, Asked
from workloads import registry
from workloads.workload import Workload
from workloads.ycsb.keys import register_name
from workloads.ycsb.properties import CORE, DEFAULTS, IGNORED, PROPORTIONS
from workloads.ycsb.workload import YcsbWorkload

PROPORTION_SLACK = 1e-6
"""By which a sum of proportions may miss 1: thirds are written with a few digits."""
OPERATIONS_PER_RECORD = 10
KEY_BYTES, VALUE_HEADER_BYTES, FIELD_LENGTHS_BYTES = 23, 32, 8
"""`user` and 19 digits; the header of docs/formats.md; YCSB's two lengths of a field's name and bytes."""
FIELD_HEADER_BYTES = 39
"""Before each field's own bytes on PostgreSQL (docs/formats.md)."""
DATA_COPIES = 2
"""A compaction keeps its input until its output is whole; clones share the tables, which are most of it."""
RECORDS_MAX, RECORD_BYTES_MAX = 1_000 * SCALE_MAX, 1 << 30
"""What a workload may ask for: loading the first takes days; RocksDB takes no value of 4 GiB or more."""


def make(asked: Asked, name: str, size: Size) -> Made:
    """The workload that is asked for; ``--scale`` means thousands of records.

    Raises InvalidInput with every fault.
    """
    load = _workload(name, asked.properties, asked.scale, size.records).on(asked.engine)
    return Made(
        load,
        clients=_clients_of(load),
        target_per_s=asked.target or 0.0,
        findings=(*_unused_properties(load), *_scaled_proportions(load)),
    )


def again(name: str, parameters: Mapping[str, str], where: str, watcher: Watcher | None) -> YcsbWorkload:
    """The workload of a recording."""
    return YcsbWorkload.of_parameters(name, parameters, where, watcher)


def watched(workload: Workload[Any], watcher: Watcher) -> YcsbWorkload:
    """The same with this watcher."""
    return replace(_of_ycsb(workload), watcher=watcher)


def describe(workload: Workload[Any]) -> Described:
    """Its records, the bytes of all that are loaded (random fields hardly compress), and its properties."""
    load = _of_ycsb(workload)
    one = stored_bytes(load)
    by_name = registry.find(load.name)
    known = by_name.properties.stated if isinstance(by_name, YcsbWorkload) else {}
    return Described(
        in_words=f"{load.properties.record_count} records",
        data_bytes=DATA_COPIES * data_bytes(load),
        arithmetic=f"{load.properties.record_count} records of {one} bytes, "
        f"{DATA_COPIES} times for what compactions and updates add",
        hint="fewer records (--scale), smaller ones (-p fieldlength), or a larger disk (--data)",
        stated=load.properties.stated,
        options=tuple(
            word
            for name, value in load.properties.stated.items()
            if known.get(name) != value
            for word in ("-p", f"{name}={value}")
        ),
    )


def loses(workload: Workload[Any]) -> str:
    """Nothing of YCSB's own does."""
    del workload
    return ""


def name_of(lost: LostWrite, parameters: Mapping[str, str]) -> str:
    """The record's key; on PostgreSQL with the field behind it."""
    return register_name(lost.register, parameters)


def record_bytes(properties: Mapping[str, str]) -> int:
    """The bytes of one record, key included, whose fields are as long as they may be (docs/formats.md)."""
    name_bytes = len(properties["fieldnameprefix"]) + 1
    field_bytes = name_bytes + int(properties["fieldlength"]) + FIELD_LENGTHS_BYTES
    return KEY_BYTES + VALUE_HEADER_BYTES + int(properties["fieldcount"]) * field_bytes


def stored_bytes(workload: YcsbWorkload) -> int:
    """The bytes of one record as the workload's engine stores it: on PostgreSQL each field has a header."""
    headers = int(workload.properties["fieldcount"]) if workload.engine == "postgresql" else 0
    return record_bytes(workload.properties) + headers * FIELD_HEADER_BYTES


def data_bytes(workload: YcsbWorkload) -> int:
    """The bytes of all records that are loaded, not compressed: random fields hardly can be."""
    return workload.properties.record_count * stored_bytes(workload)


def _of_ycsb(workload: Workload[Any]) -> YcsbWorkload:
    assert isinstance(workload, YcsbWorkload), f"{workload.name} is of another family"
    return workload


def _refuse_too_much(workload: YcsbWorkload, where: str) -> None:
    """Raises InvalidInput for a data set beyond RECORDS_MAX or RECORD_BYTES_MAX; ``where`` asks for it."""
    asked = int(workload.properties["recordcount"])
    if asked > RECORDS_MAX:
        raise InvalidInput(
            f"recordcount={asked} is above the limit of {RECORDS_MAX}", where=where, hint="load fewer records"
        )
    one = record_bytes(workload.properties)
    if one > RECORD_BYTES_MAX:
        raise InvalidInput(
            f"fieldcount and fieldlength make records of {one} bytes; the limit is {RECORD_BYTES_MAX}",
            where=where,
            hint="make them smaller",
        )


def _clients_of(workload: YcsbWorkload) -> int | None:
    """The threadcount of a properties file. Raises InvalidInput where it is no number."""
    stated = workload.properties.ignored.get("threadcount")
    if stated is None:
        return None
    if not stated.isdigit() or not 1 <= int(stated) <= CLIENTS_MAX:
        raise InvalidInput(
            f"threadcount={stated} is no number from 1 to {CLIENTS_MAX}", where=workload.properties.where
        )
    return int(stated)


def _unused_properties(workload: YcsbWorkload) -> list[Finding]:
    """What a properties file says of a run's pace and end, which duratune's own options decide."""
    return [
        Finding(
            "property-not-used",
            name,
            value,
            "",
            "nothing",
            "duratune's own options set a run's rate (--target) and length (bench --time, else --measure)",
            workload.properties.where,
        )
        for name, value in workload.properties.ignored.items()
        if name in ("target", "maxexecutiontime")
    ]


def _scaled_proportions(workload: YcsbWorkload) -> list[Finding]:
    """YCSB takes proportions as weights (DiscreteGenerator.java divides by their sum); so does the driver."""
    weights = {name: float(workload.properties[name]) for name in PROPORTIONS}
    total = sum(weights.values())
    if abs(total - 1.0) < PROPORTION_SLACK:
        return []
    shares = ", ".join(f"{name} {weight / total:.3g}" for name, weight in weights.items() if weight)
    return [
        Finding(
            "proportions-scaled",
            "the proportions' sum",
            f"{total:g}",
            "",
            "nothing",
            f"YCSB divides by it; what runs is {shares}",
            workload.properties.where,
        )
    ]


def _workload(name: str, properties: Sequence[str] | None, scale: int | None, records: int) -> YcsbWorkload:
    found = _of_ycsb(registry.find(name))
    given = _pairs(properties or [])
    _refuse_two_counts(given, scale)
    from_file = name.removeprefix("ycsb:") not in CORE
    values: dict[str, str] = {}
    if scale is not None:
        values["recordcount"] = str(scale * 1_000)
    elif not (from_file and "recordcount" in found.properties.stated):
        values["recordcount"] = str(records)
    try:
        whole = found.with_values(values | given)
    except InvalidInput as error:
        raise InvalidInput(
            error.what, where="-p" if given else error.where, hint=_property_hint(given)
        ) from None
    _refuse_too_much(whole, "-p" if given else whole.properties.where)
    if "operationcount" in given or (from_file and "operationcount" in found.properties.stated):
        return whole
    # D and E size their key space by it (CoreWorkload: expected new keys); the run itself is bounded in time.
    return whole.with_values({"operationcount": str(OPERATIONS_PER_RECORD * whole.properties.record_count)})


def _refuse_two_counts(given: Mapping[str, str], scale: int | None) -> None:
    for name in ("recordcount", "insertcount"):
        if scale is not None and given.get(name, str(scale * 1_000)) != str(scale * 1_000):
            raise InvalidInput(
                f"-p {name}={given[name]} contradicts --scale {scale}, which is {scale * 1_000} records",
                where="--scale",
                hint="leave one of them out",
            )


def _property_hint(given: Mapping[str, str]) -> str:
    """The nearest names to those that are none, else where the properties are told."""
    known = [*DEFAULTS, *IGNORED]
    near = [found for name in given if name not in known for found in get_close_matches(name, known, n=1)]
    return (
        f"did you mean {', '.join(near)}?"
        if near
        else "as in -p fieldlength=200; they are YCSB's core properties"
    )


def _pairs(properties: Sequence[str]) -> dict[str, str]:
    wrong = [pair for pair in properties if "=" not in pair]
    if wrong:
        raise InvalidInput(f"'{wrong[0]}' is no NAME=VALUE", where="-p", hint="as in -p fieldlength=200")
    return dict(pair.split("=", 1) for pair in properties)
