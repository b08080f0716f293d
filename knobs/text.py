"""Configuration files as text: what is no text is refused with the line where it stops being one."""

from __future__ import annotations

from knobs.errors import InvalidInput


def decoded(content: str | bytes, where: str) -> str:
    """The text of a configuration file; raises InvalidInput for binary, non-UTF-8 and empty ones."""
    hint = "a configuration is a text file: an OPTIONS file of RocksDB, or JSON"
    raw = content.encode("utf-8") if isinstance(content, str) else content
    binary = raw.find(b"\0")
    if binary >= 0:
        line = raw[:binary].count(b"\n") + 1
        raise InvalidInput(f"line {line} holds binary data", where=where, hint=hint)
    try:
        # Editors of other systems put a byte order mark before the text; it belongs to no form that we read.
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InvalidInput(f"line {line} is not UTF-8 text", where=where, hint=hint) from error
    if not text.strip():
        raise InvalidInput("the file is empty", where=where, hint=hint)
    return text
