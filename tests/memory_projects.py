"""Projects to index: folders with files, as repositories of git or without; and asking memory about them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llc.runtime.memory.ignore import Listing, list_files
from llc.runtime.memory.index import Index, Update, index_path
from llc.runtime.memory.recall import Answer, read_request, recall


def go_on() -> None:
    """What stops nothing."""


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    """Files by their paths."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def repository(folder: Path, files: dict[str, str | bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    return write(folder, files)


def git(folder: Path, *words: str) -> str:
    """git with nothing of whoever runs the tests."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_NOSYSTEM": "1", "HOME": str(folder.parent)}
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "protocol.file.allow=always"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


def listed(folder: Path) -> list[str]:
    return [os.fsdecode(entry.path) for entry in list_files(str(folder), go_on).entries]


def left_out(folder: Path) -> dict[str, str]:
    return {os.fsdecode(path): reason for path, reason in list_files(str(folder), go_on).left_out}


def update(folder: Path, listing: Listing | None = None) -> Update:
    """The index of a project brought up to date."""
    root = str(folder)
    with Index(root, go_on, index_path(root)) as index:
        return index.update(listing or list_files(root, go_on))


def ask(folder: Path, query: Any = None, check: Callable[[], object] = go_on, **fields: Any) -> Answer:
    return recall(str(folder), read_request({"query": query, **fields}), check)


def found(folder: Path, query: Any = None, **fields: Any) -> list[str]:
    """The paths that memory finds, best first."""
    return [match.path for match in ask(folder, query, **fields).matches]
