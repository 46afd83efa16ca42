"""The tool `code:replace`. An exception is a fault of the flow, which the flow can catch."""

from pathlib import Path


def replace(path: str, before: str, after: str) -> str:
    """Replace the only occurrence of a text in a file. Returns a description of the change."""
    text = Path(path).read_text("utf-8")
    if text.count(before) != 1:
        raise ValueError(f"{before!r} occurs {text.count(before)} times in {path}")
    Path(path).write_text(text.replace(before, after), "utf-8")
    return f"{path}: replaced {before!r} by {after!r}"
