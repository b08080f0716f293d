"""YCSB's workload properties: the six core workloads, the defaults, and the files that people have.

Source: brianfrankcooper/YCSB at commit d9faaac, files workloads/workload[a-f] and CoreWorkload.java. A file
sets what it names and leaves the rest at CoreWorkload's defaults, so a file without ``updateproportion``
gets 5 % updates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from knobs.errors import InvalidInput

PROPORTIONS = (
    "readproportion",
    "updateproportion",
    "insertproportion",
    "scanproportion",
    "readmodifywriteproportion",
)

DEFAULTS: Mapping[str, str] = {
    "recordcount": "1000",
    "operationcount": "1000",
    "insertstart": "0",
    "readproportion": "0.95",
    "updateproportion": "0.05",
    "insertproportion": "0",
    "scanproportion": "0",
    "readmodifywriteproportion": "0",
    "requestdistribution": "uniform",
    "hotspotdatafraction": "0.2",
    "hotspotopnfraction": "0.8",
    "exponential.percentile": "95",
    "exponential.frac": "0.8571428571",
    "insertorder": "hashed",
    "zeropadding": "1",
    "minscanlength": "1",
    "maxscanlength": "1000",
    "scanlengthdistribution": "uniform",
    "fieldcount": "10",
    "fieldnameprefix": "field",
    "fieldlength": "100",
    "minfieldlength": "1",
    "fieldlengthdistribution": "constant",
    "readallfields": "true",
    "writeallfields": "false",
    "dataintegrity": "false",
}
"""CoreWorkload's defaults, except the two counts, which have none there: every core file says 1000."""

_CORE = {
    "readallfields": "true",
    "insertproportion": "0",
    "scanproportion": "0",
    "requestdistribution": "zipfian",
}

CORE: Mapping[str, Mapping[str, str]] = {
    "a": {**_CORE, "readproportion": "0.5", "updateproportion": "0.5"},
    "b": {**_CORE, "readproportion": "0.95", "updateproportion": "0.05"},
    "c": {**_CORE, "readproportion": "1", "updateproportion": "0"},
    "d": {
        **_CORE,
        "readproportion": "0.95",
        "updateproportion": "0",
        "insertproportion": "0.05",
        "requestdistribution": "latest",
    },
    "e": {
        **_CORE,
        "readproportion": "0",
        "updateproportion": "0",
        "insertproportion": "0.05",
        "scanproportion": "0.95",
        "maxscanlength": "100",
        "scanlengthdistribution": "uniform",
    },
    "f": {**_CORE, "readproportion": "0.5", "updateproportion": "0", "readmodifywriteproportion": "0.5"},
}
"""What workloads/workloada to workloadf set, but for their counts of 1000."""

_DRIVER_ONLY = ("insertcount", "fieldlengthhistogram")

# Of YCSB's client and output rather than of the workload: they are known, and duratune's own options say
# them.
IGNORED = frozenset(
    {
        "workload",
        "table",
        "threadcount",
        "target",
        "maxexecutiontime",
        "measurementtype",
        "measurement.interval",
        "measurement.trackjvm",
        "hdrhistogram.percentiles",
        "hdrhistogram.fileoutput",
        "hdrhistogram.output.path",
        "histogram.buckets",
        "timeseries.granularity",
        "status.interval",
        "exporter",
        "exportfile",
        "dotransactions",
        "readallfieldsbyname",
        "core_workload_insertion_retry_limit",
        "core_workload_insertion_retry_interval",
    }
)

_DISTRIBUTIONS = ("uniform", "zipfian", "latest", "hotspot", "exponential", "sequential")
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "requestdistribution": _DISTRIBUTIONS,
    "scanlengthdistribution": ("uniform", "zipfian"),
    "fieldlengthdistribution": ("constant", "uniform", "zipfian", "histogram"),
    "readallfields": ("true", "false"),
    "writeallfields": ("true", "false"),
    "dataintegrity": ("true", "false"),
}
_LEAST: Mapping[str, int] = {
    "recordcount": 1,
    "operationcount": 0,
    "insertstart": 0,
    "insertcount": 1,
    "zeropadding": 0,
    "minscanlength": 1,
    "maxscanlength": 1,
    "fieldcount": 1,
    "fieldlength": 1,
    "minfieldlength": 1,
}
_FRACTIONS = ("hotspotdatafraction", "hotspotopnfraction")


class Properties(Mapping[str, str]):
    """A complete, valid set of properties; ``stated`` are those that were named, the rest are defaults.

    ``ignored`` are those that YCSB knows and that say nothing of the requests.
    """

    def __init__(self, stated: Mapping[str, str], where: str) -> None:
        """Raises InvalidInput with every fault of ``stated``."""
        named = {key: value.strip() for key, value in stated.items() if key not in IGNORED}
        self._values = {**DEFAULTS, **named}
        self.stated = named
        self.ignored = {key: value.strip() for key, value in stated.items() if key in IGNORED}
        self.where = where
        faults = [fault for key in named for fault in _faults_of(key, named[key])]
        faults = faults or list(_joint_faults(self._values))
        if faults:
            raise InvalidInput("; ".join(faults), where=where)

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def with_values(self, values: Mapping[str, str]) -> Properties:
        """The same with other values; raises InvalidInput with every fault."""
        return Properties({**self.ignored, **self.stated, **values}, self.where)

    @property
    def record_count(self) -> int:
        """Records that are loaded."""
        return int(self._values.get("insertcount", self._values["recordcount"]))


def core(letter: str) -> Properties:
    """The core workload ``a`` to ``f``."""
    return Properties(CORE[letter], f"ycsb:{letter}")


def read_file(path: Path) -> Properties:
    """Read a YCSB properties file. Raises InvalidInput with every fault of it."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise InvalidInput("is no text file", where=str(path)) from error
    return Properties(parse(text, str(path)), str(path))


def parse(text: str, where: str) -> dict[str, str]:
    """The pairs of a Java properties file; the last of several lines with one key wins, as in Java.

    Raises InvalidInput for escapes and continued lines, which YCSB's own files do not use.
    """
    values: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line[0] in "#!":
            continue
        if "\\" in line:
            raise InvalidInput(f"line {number} has a backslash, which is not supported", where=where)
        match = re.fullmatch(r"([^=:\s]+)(?:\s*[=:]\s*|\s+|$)(.*)", line)
        if match is None:
            raise InvalidInput(f"line {number} is no key and value: {line[:60]}", where=where)
        values[match[1]] = match[2].strip()
    return values


def _faults_of(key: str, value: str) -> Iterator[str]:
    if key not in DEFAULTS and key not in _DRIVER_ONLY:
        yield f"unknown property {key}"
    elif key in _CHOICES and value not in _CHOICES[key]:
        yield f"{key}={value} is none of {', '.join(_CHOICES[key])}"
    elif key in _LEAST:
        yield from _number_faults(key, value, int, float(_LEAST[key]), 2.0**62)
    elif key in PROPORTIONS:
        yield from _number_faults(key, value, float, 0.0, math.inf)
    elif key in _FRACTIONS:
        yield from _number_faults(key, value, float, 0.0, 1.0)
    elif key in ("exponential.percentile", "exponential.frac"):
        yield from _number_faults(key, value, float, 1e-9, 99.999999 if "percentile" in key else math.inf)
    elif not value or "\n" in value:
        yield f"{key} is empty"


def _number_faults(
    key: str, value: str, number_of: Callable[[str], float], least: float, most: float
) -> Iterator[str]:
    try:
        number = number_of(value)
    except ValueError:
        yield f"{key}={value} is no {'whole ' if number_of is int else ''}number"
        return
    if not math.isfinite(number):
        yield f"{key}={value} is no finite number"
    elif number < least:
        yield f"{key}={value} is negative" if least == 0 else f"{key}={value} is below {least:g}"
    elif number > most:
        yield f"{key}={value} is above {most:g}"


def _joint_faults(values: Mapping[str, str]) -> Iterator[str]:
    if sum(float(values[key]) for key in PROPORTIONS) <= 0:
        yield "all proportions are zero"
    records, start = int(values["recordcount"]), int(values["insertstart"])
    if start >= records:
        yield "insertstart is not below recordcount"
    elif start + int(values.get("insertcount", "1")) > records:
        yield "insertstart + insertcount is above recordcount"
    if int(values["maxscanlength"]) < int(values["minscanlength"]):
        yield "maxscanlength is below minscanlength"
    if int(values["fieldlength"]) < int(values["minfieldlength"]):
        yield "fieldlength is below minfieldlength"
    if values["dataintegrity"] == "true" and values["fieldlengthdistribution"] != "constant":
        yield "dataintegrity needs fieldlengthdistribution=constant"
