"""The manual's text on a setting, from the manual that is installed here (Debian: postgresql-doc-NN)."""

from __future__ import annotations

import functools
import re
from html.parser import HTMLParser
from pathlib import Path

DOC = Path("/usr/share/doc")

_BLOCKS = frozenset({"p", "li", "pre", "tr", "dt"})


def text(major: str, source: str, doc: Path = DOC) -> str:
    """The paragraphs at ``source`` ("PAGE.html#ANCHOR") of the manual of that version.

    "" where the manual is not installed or says nothing there.
    """
    page, _, anchor = source.partition("#")
    file = doc / f"postgresql-doc-{major}" / "html" / page
    return _entries(file).get(anchor.lower(), "") if anchor else ""


@functools.cache
def _entries(file: Path) -> dict[str, str]:
    """Every described term of a page: its anchor, in lower case, and its text."""
    try:
        content = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    reader = _Reader()
    reader.feed(content)
    return {anchor: _paragraphs("".join(parts)) for anchor, parts in reader.entries.items()}


class _Reader(HTMLParser):
    """Collects the text of the `dd` that follows each `dt` with an id of a setting, nested lists included."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[str, list[str]] = {}
        self._open: list[str] = []
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        anchor = (dict(attrs).get("id") or "").lower()
        if tag == "dt" and anchor.startswith("guc-") and self._depth == 0:
            self._open.append(anchor)
        elif tag == "dd" and self._open:
            self._depth += 1
        elif tag in _BLOCKS and self._depth:
            self._add("\n\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "dd" and self._depth:
            self._depth -= 1
            if self._depth == 0:
                self._open.clear()

    def handle_data(self, data: str) -> None:
        if self._depth:
            self._add(data)

    def _add(self, piece: str) -> None:
        for anchor in self._open:
            self.entries.setdefault(anchor, []).append(piece)


def _paragraphs(raw: str) -> str:
    pieces = (re.sub(r"\s+", " ", piece).strip() for piece in raw.split("\n\n"))
    return "\n\n".join(piece for piece in pieces if piece)
