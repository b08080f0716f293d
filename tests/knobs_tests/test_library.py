"""The native tool, and what is said when it or the library cannot answer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from knobs import native
from knobs.errors import InvalidInput
from knobs.rocksdb import library, options_file


def run(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    tool = str(native.find(library.TOOL))
    return subprocess.run([tool, *arguments], input=text, capture_output=True, encoding="utf-8", check=False)


@pytest.mark.parametrize("arguments", [(), ("nonsense",), ("options", "x"), ("roundtrip",), ("open", "x")])
def test_wrong_usage_is_exit_2(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage:")


def test_rocksdbs_own_message_comes_through(tmp_path: Path) -> None:
    file = tmp_path / "OPTIONS"
    text = options_file.from_default().render().replace("  max_open_files", "  max_opn_files")
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"Could not find option: : max_opn_files"):
        library.roundtrip(file)
    with pytest.raises(InvalidInput, match=r"No such file"):
        library.roundtrip(tmp_path / "none")


def test_probes_answer_in_order_and_survive_what_the_library_throws() -> None:
    answers = library.probe(
        [
            ("DBOptions", "max_open_files", "7"),
            ("CFOptions", "num_levels", "-1"),  # the library throws std::length_error
            ("DBOptions", "nonsense", "7"),
            ("Nowhere", "x", "7"),
            ("BlockBasedTableOptions", "block_cache", "64M"),
        ]
    )
    assert [answer.accepted for answer in answers] == [True, False, False, False, True]
    assert [answer.registered for answer in answers] == [True, True, False, True, True]
    assert (answers[0].text, answers[4].text) == ("7", "67108864")
    assert run("probe", text="no tabs here\n").returncode == 2


def test_a_full_disk_is_no_answer() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [str(native.find(library.TOOL)), "options"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 70


def test_an_abort_of_the_library_is_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "OPTIONS"
    changed = options_file.from_default().apply({"CFOptions.compression": "kDisableCompressionOption"})
    file.write_text(changed.render(), encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"RocksDB aborted: .*CompressionTypeSupported"):
        library.open_database(file, tmp_path / "db")
