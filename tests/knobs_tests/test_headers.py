"""The header reader, on headers of the shapes that RocksDB's have, and on the installed ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from knobs.errors import InvalidInput, MachineLacks
from knobs.rocksdb import headers

SHAPES = """\
#pragma once
// About the struct.
struct Before { int hidden = 1; };

struct Shapes : public Base {
  static const char* kName() { return "Shapes"; };
  // A function is no member.
  Shapes* Optimize(int threads = 16, const std::string& name = {});

  // A comment that a blank line parts from what follows.

  // First line.
  //
  // Default: 4 { not a brace
  int first = 4;  // trailing words; with = and {
  // Two of them
  // share this.
  uint64_t ttl_seconds = 0;
  uint64_t size_limit_MB = 0;

  std::vector<std::shared_ptr<Listener>>
      listeners;

  // The kinds there are.
  enum Kind : char {
    // Comment of a constant.
    kOne = 0x00,
    kTwo,
  };
  Kind kind = kOne;

#ifdef NDEBUG
  // Loud or quiet.
  Level level = QUIET;
#else
  Level level = LOUD;
#endif

  // Called back.
  Status (*callback)(char* existing, uint32_t* size,
                     std::string* merged) = nullptr;
  const Comparator* comparator = BytewiseComparator();
  bool brace_init{true};
  size_t last;

  Shapes() : first(4), last(0) {}
  explicit Shapes(int value)
      : first(value),
        last(0) {
    if (value) {
      last = 1;
    }
  }
  static int counter;
};

struct After { int other; };
"""


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    file = tmp_path / "shapes.h"
    file.write_text(SHAPES, encoding="utf-8")
    return file


def test_members_and_nothing_else(shapes: Path) -> None:
    members = headers.read_members(shapes, "Shapes")
    assert [(member.name, member.type) for member in members] == [
        ("first", "int"),
        ("ttl_seconds", "uint64_t"),
        ("size_limit_MB", "uint64_t"),
        ("listeners", "std::vector<std::shared_ptr<Listener>>"),
        ("kind", "Kind"),
        ("level", "Level"),
        ("callback", "Status (*)(...)"),
        ("comparator", "const Comparator*"),
        ("brace_init", "bool"),
        ("last", "size_t"),
    ]


def test_comments_belong_to_what_they_stand_above(shapes: Path) -> None:
    text = {member.name: member.documentation for member in headers.read_members(shapes, "Shapes")}
    assert text["first"] == "First line.\n\nDefault: 4 { not a brace"
    assert text["ttl_seconds"] == text["size_limit_MB"] == "Two of them\nshare this."
    assert text["listeners"] == ""
    assert text["kind"] == "The kinds there are."
    assert text["level"] == "Loud or quiet."


def test_lines_are_where_the_declaration_begins(shapes: Path) -> None:
    lines = SHAPES.splitlines()
    for member in headers.read_members(shapes, "Shapes"):
        begin = lines[member.line - 1]
        assert member.name in begin or begin.strip().startswith("std::vector")
        assert member.file == "rocksdb/shapes.h"


def test_enums(shapes: Path) -> None:
    assert headers.read_enum(shapes, "Kind") == ("kOne", "kTwo")
    assert headers.read_enum(shapes, "Other") == ()


def test_what_is_not_there_is_refused(shapes: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such struct"):
        headers.read_members(shapes, "Missing")
    with pytest.raises(MachineLacks, match=r"none\.h"):
        headers.read_members(tmp_path / "none.h", "Shapes")
    cut = tmp_path / "cut.h"
    cut.write_text(SHAPES[: SHAPES.index("static int")], encoding="utf-8")
    with pytest.raises(InvalidInput, match="no end"):
        headers.read_members(cut, "Shapes")


def test_the_installed_headers() -> None:
    folder = headers.find_headers()
    write = {member.name: member for member in headers.read_members(folder / "options.h", "WriteOptions")}
    assert write["sync"].type == "bool"
    assert write["sync"].documentation.startswith(
        "If true, the write will be flushed from the operating system"
    )
    line = (folder / "options.h").read_text(encoding="utf-8").splitlines()[write["sync"].line - 1]
    assert line.strip() == "bool sync;"
    assert "kPointInTimeRecovery" in headers.read_enum(folder / "options.h", "WALRecoveryMode")
