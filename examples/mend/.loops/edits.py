"""The tool `code:replace`. An exception here is a fault of the flow, which it may catch."""

from pathlib import Path


def replace(path: str, before: str, after: str) -> str:
    """Change the file; what was done, in a few words."""
    text = Path(path).read_text("utf-8")
    if text.count(before) != 1:
        raise ValueError(f"{before!r} stands {text.count(before)} times in {path}")
    Path(path).write_text(text.replace(before, after), "utf-8")
    return f"{path}: {before!r} is {after!r}"
