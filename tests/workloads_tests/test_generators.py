"""The generators against YCSB's published definitions: values printed by YCSB's own classes on JDK 17."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.workloads_tests.conftest import Vectors
from workloads.ycsb.keys import fnv_hash, key_name
from workloads.ycsb.properties import core

READ, UPDATE, INSERT, SCAN, READ_MODIFY_WRITE = range(5)

HASHES = {
    0: 6284781860667377211,
    1: 8517097267634966620,
    2: 1820151046732198393,
    3: 4052466453699787802,
    4: 3232700585171816769,
    5: 1000385178204227360,
    999: 2071219101098386137,
    1000: 5952875239596136740,
    1001: 3339209904021769693,
    2**31: 5860980763039959109,
    9999999999: 3605131173811637474,
    10000000000: 1201321332300452516,
}
ZETAS = {
    2: 1.5034777750283594,
    10: 2.9561075165103636,
    1000: 7.728953217284729,
    1001: 7.730023676840303,
    10000: 10.224361459595578,
    1000000: 15.391849746037371,
}
ZIPFIAN_DRAWS = {
    0: 0, 0.12: 0, 0.13: 1, 0.19: 1, 0.20: 2, 0.25: 3, 0.30: 4, 0.50: 22, 0.75: 151, 0.90: 471, 0.99: 927,
    0.999: 992, 0.999999: 999,
}  # fmt: skip
SCRAMBLED_DRAWS = {
    0: 144, 0.1: 942, 0.12: 505, 0.13: 253, 0.19: 539, 0.20: 421, 0.25: 809, 0.30: 824, 0.50: 367, 0.75: 767,
    0.90: 991, 0.99: 745, 0.999: 483, 0.999999: 383,
}  # fmt: skip
FIRST_KEYS = [f"user{HASHES[number]}" for number in range(5)]
INTEGRITY = (
    "user6284781860667377211:field0:1106546143:680040890:-1813823343:-1693248218:-1278633925:-150907434:-"
)
# The hottest indexes and shares of 10^7 draws by YCSB's own class over [0, 1000].
HOTTEST = {144: 0.0386, 610: 0.0200, 213: 0.0160, 679: 0.0116, 10: 0.0093, 545: 0.0078, 942: 0.0066}


def listed(values: Iterable[float]) -> str:
    return ",".join(str(value) for value in values)


def requests(vectors: Vectors, letter: str, count: int, **more: object) -> list[list[int]]:
    spec: dict[str, object] = {**core(letter), "vectors.generator": "requests", "vectors.count": count}
    result: list[list[int]] = vectors({**spec, "seed": 1, **more})
    return result


def test_hash_is_fnv_least_significant_byte_first(vectors: Vectors) -> None:
    assert vectors({"vectors.generator": "hash", "vectors.numbers": listed(HASHES)}) == list(HASHES.values())


def test_key_names(vectors: Vectors) -> None:
    assert vectors({"vectors.generator": "names", "vectors.numbers": "0,1,2,3,4"}) == FIRST_KEYS
    ordered = {"vectors.generator": "names", "vectors.numbers": "7,123", "insertorder": "ordered"}
    assert vectors(ordered) == ["user7", "user123"]
    assert vectors({**ordered, "zeropadding": 6}) == ["user000007", "user000123"]


def test_key_names_in_python_are_the_drivers(vectors: Vectors, rng: random.Random) -> None:
    numbers = [rng.randrange(2**40) for _ in range(200)]
    for properties in (core("a"), core("a").with_values({"insertorder": "ordered", "zeropadding": "9"})):
        spec = {**properties, "vectors.generator": "names", "vectors.numbers": listed(numbers)}
        assert vectors(spec_of_names(spec)) == [key_name(number, properties) for number in numbers]
    assert [fnv_hash(number) for number in HASHES] == list(HASHES.values())


def spec_of_names(spec: Mapping[str, str]) -> dict[str, str]:
    """Only the keys that this generator asks for: others are rejected."""
    wanted = ("vectors.generator", "vectors.numbers", "insertorder", "zeropadding")
    return {key: spec[key] for key in wanted}


def test_zeta_is_bit_for_bit_that_of_ycsb(vectors: Vectors) -> None:
    assert vectors({"vectors.generator": "zeta", "vectors.numbers": listed(ZETAS)}) == list(ZETAS.values())


def test_eta(vectors: Vectors) -> None:
    # pow of glibc and of Java may differ in the last bit, which eta enlarges.
    got = vectors({"vectors.generator": "eta", "vectors.numbers": "1000"})
    assert got == pytest.approx([0.07480608670689791, 0.21220003380967392], rel=1e-14)


def test_zipfian_draws(vectors: Vectors) -> None:
    spec = {"vectors.generator": "zipfian", "vectors.items": 1000, "vectors.u": listed(ZIPFIAN_DRAWS)}
    assert vectors(spec) == list(ZIPFIAN_DRAWS.values())


def test_scrambled_draws(vectors: Vectors) -> None:
    spec = {"vectors.generator": "scrambled", "vectors.items": 1001, "vectors.u": listed(SCRAMBLED_DRAWS)}
    assert vectors(spec) == list(SCRAMBLED_DRAWS.values())


def test_scrambled_shares(vectors: Vectors) -> None:
    draws = 1_000_000
    counts = vectors(
        {"vectors.generator": "shares", "vectors.items": 1001, "vectors.count": draws, "seed": 3}
    )
    assert sum(counts) == draws
    by_share = [index for index, _ in Counter(dict(enumerate(counts))).most_common(4)]
    assert by_share == [144, 610, 213, 679]
    for index, share in HOTTEST.items():
        # Four sigma of the draws, and the published share's own rounding.
        assert abs(counts[index] / draws - share) < 4 * math.sqrt(share / draws) + 5e-5
    assert sum(sorted(counts)[-10:]) / draws == pytest.approx(0.126, abs=0.002)
    assert sum(sorted(counts)[-100:]) / draws == pytest.approx(0.290, abs=0.002)


def scrambled_shares() -> list[float]:
    """The exact shares of [0, 1000]: the common items one by one, the rest spread evenly by the hash."""
    theta, n, zetan, singles = 0.99, 10_000_000_001, 26.46902820178302, 20_000
    alpha = 1 / (1 - theta)
    eta = (1 - (2 / n) ** (1 - theta)) / (1 - (1 + 0.5**theta) / zetan)

    def u_of(item: int) -> float:  # the smallest u that draws at least this item
        return float(((item / n) ** (1 / alpha) - 1 + eta) / eta)

    ends = [0.0, 1 / zetan, (1 + 0.5**theta) / zetan, *(u_of(item) for item in range(3, singles + 1))]
    shares = [(1 - ends[-1]) / 1001] * 1001
    for item, (low, high) in enumerate(itertools.pairwise(ends)):
        shares[fnv_hash(item) % 1001] += max(0.0, high - low)
    return shares


def test_scrambled_draws_fit_the_exact_shares(vectors: Vectors) -> None:
    draws = 1_000_000
    counts = vectors(
        {"vectors.generator": "shares", "vectors.items": 1001, "vectors.count": draws, "seed": 5}
    )
    expected = [share * draws for share in scrambled_shares()]
    assert sum(expected) == pytest.approx(draws, rel=1e-6)
    chi_square = sum((got - want) ** 2 / want for got, want in zip(counts, expected, strict=True))
    # 1000 degrees of freedom: sigma is sqrt(2000); five of them are a chance of about one in a million.
    assert chi_square < 1000 + 5 * math.sqrt(2000)


@pytest.mark.parametrize("letter", "abcdef")
def test_operation_mix(vectors: Vectors, letter: str) -> None:
    count = 100_000
    properties = core(letter)
    got = Counter(operation for operation, *_ in requests(vectors, letter, count))
    names = ("readproportion", "updateproportion", "insertproportion", "scanproportion")
    for operation, name in enumerate((*names, "readmodifywriteproportion")):
        share = float(properties[name])
        sigma = math.sqrt(count * share * (1 - share))
        assert abs(got[operation] - count * share) <= 4 * sigma


def test_index_beyond_the_records_is_never_requested(vectors: Vectors) -> None:
    keys = {key for _, key, *_ in requests(vectors, "a", 100_000)}
    assert keys == set(range(1000))


def test_latest_grows_with_the_newest_key(vectors: Vectors) -> None:
    # u below 1/zeta is always the newest; key 0 is never drawn.
    got = vectors(
        {"vectors.generator": "latest", "vectors.numbers": "999,1000,5000", "vectors.u": "0,0.12,0.9999999"}
    )
    assert got[0::3] == [999, 1000, 5000]
    assert got[1] == 999
    assert all(key >= 1 for key in got)


def test_latest_shares(vectors: Vectors) -> None:
    count = 200_000
    spec = {**core("d"), "readproportion": "1", "insertproportion": "0", "seed": 2}
    got = Counter(
        key for _, key, *_ in vectors({**spec, "vectors.generator": "requests", "vectors.count": count})
    )
    for key, share in {999: 0.1294, 998: 0.0652, 997: 0.0510}.items():
        assert abs(got[key] / count - share) < 4 * math.sqrt(share / count) + 5e-5
    assert 0 not in got


@pytest.mark.parametrize("fail_every", [0, 3])
def test_only_inserted_keys_are_read(vectors: Vectors, fail_every: int) -> None:
    readable = set(range(1000))
    inserts = reads_of_new = 0
    for operation, key, *_ in requests(vectors, "d", 50_000, **{"vectors.fail_every": fail_every}):
        if operation == INSERT:
            assert key == 1000 + inserts
            inserts += 1
            if fail_every == 0 or inserts % fail_every:
                readable.add(key)
        else:
            assert key in readable
            reads_of_new += key >= 1000
    assert inserts > 2_000
    assert reads_of_new > 1_000


def test_scan_lengths(vectors: Vectors) -> None:
    lengths = [length for operation, _, length, _ in requests(vectors, "e", 50_000) if operation == SCAN]
    assert set(lengths) == set(range(1, 101))


def test_one_field_is_updated_unless_all_are_written(vectors: Vectors) -> None:
    fields = Counter(
        field for operation, _, _, field in requests(vectors, "a", 20_000) if operation == UPDATE
    )
    assert set(fields) == set(range(10))
    assert all(abs(count - 1000) < 200 for count in fields.values())
    written = requests(vectors, "a", 1_000, writeallfields="true")
    assert {field for *_, field in written} == {-1}
    read = requests(vectors, "c", 1_000, readallfields="false")
    assert {field for *_, field in read} == set(range(10))


@pytest.mark.parametrize("distribution", ["uniform", "hotspot", "exponential", "sequential"])
def test_other_distributions(vectors: Vectors, distribution: str) -> None:
    got = requests(vectors, "c", 100_000, requestdistribution=distribution)
    keys = Counter(key for _, key, *_ in got)
    assert min(keys) >= 0
    assert max(keys) < 1000
    if distribution == "uniform":
        assert max(keys.values()) < 100 + 6 * 10
        assert len(keys) == 1000
    if distribution == "hotspot":
        assert sum(keys[key] for key in range(200)) / 100_000 == pytest.approx(0.8, abs=0.006)
    if distribution == "exponential":
        # 95 % of the requests are for the newest 85.7 % of the keys; what falls below key 0 is drawn again.
        gamma = -math.log(0.05) / (1000 * 0.8571428571)
        half = (1 - math.exp(-gamma * 500)) / (1 - math.exp(-gamma * 1000))
        assert sum(keys[key] for key in range(500, 1000)) / 100_000 == pytest.approx(half, abs=0.006)
    if distribution == "sequential":
        assert [key for _, key, *_ in got[:2000]] == [*range(1000), *range(1000)]


def test_same_seed_same_stream(vectors: Vectors) -> None:
    first = requests(vectors, "a", 2_000)
    assert requests(vectors, "a", 2_000) == first
    assert requests(vectors, "a", 2_000, seed=2) != first
    assert requests(vectors, "a", 2_000, **{"vectors.client": 2}) != first


def test_field_bytes(vectors: Vectors) -> None:
    fields = vectors({"vectors.generator": "fields", "vectors.count": 3_000, "seed": 4})
    assert {len(field) for field in fields} == {100}
    third = r"[\x20-\x3f\x60-\x7f]"
    group = re.compile(rf"(?:[\x20-\x3f][\x20-\x5f]{third})*[\x20-\x3f]")
    assert all(group.fullmatch(field) for field in fields)
    # Every allowed byte occurs at each place of the group.
    for place, allowed in enumerate((32, 64, 64)):
        assert len({field[at] for field in fields for at in range(place, 99, 3)}) == allowed


def test_field_lengths(vectors: Vectors) -> None:
    spec = {"vectors.generator": "fields", "vectors.count": 5_000, "fieldlength": 20, "minfieldlength": 5}
    uniform = {len(field) for field in vectors({**spec, "fieldlengthdistribution": "uniform"})}
    assert uniform == set(range(5, 21))
    zipfian = Counter(len(field) for field in vectors({**spec, "fieldlengthdistribution": "zipfian"}))
    assert min(zipfian) == 5
    assert max(zipfian) <= 20
    assert zipfian.most_common(1)[0][0] == 5


def test_field_lengths_from_a_histogram(vectors: Vectors, tmp_path: Path) -> None:
    path = tmp_path / "hist.txt"
    path.write_text("BlockSize\t10\n0\t3\n2\t1\n")
    spec = {"vectors.generator": "fields", "vectors.count": 4_000, "fieldlengthdistribution": "histogram"}
    got = Counter(len(field) for field in vectors({**spec, "fieldlengthhistogram": path}))
    assert set(got) == {10, 30}
    assert got[10] / 4_000 == pytest.approx(0.75, abs=0.03)


def test_deterministic_fields(vectors: Vectors) -> None:
    assert vectors({"vectors.generator": "fields", "dataintegrity": "true"}) == [INTEGRITY]
