"""Projects for the memory index: folders with files, with or without git; and memory queries."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llc.runtime.memory.ignore import Listing, list_files
from llc.runtime.memory.index import Index, Update, index_path
from llc.runtime.memory.recall import Answer, read_request, recall


def no_check() -> None:
    """A check that never interrupts."""


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    """Write files given by their paths."""
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
    """Run git without the configuration of the user who runs the tests."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_NOSYSTEM": "1", "HOME": str(folder.parent)}
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "protocol.file.allow=always"]
    process = subprocess.run(
        ["git", *identity, *words], cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    return process.stdout


def listed_paths(folder: Path) -> list[str]:
    return [os.fsdecode(entry.path) for entry in list_files(str(folder), no_check).entries]


def omitted_paths(folder: Path) -> dict[str, str]:
    return {os.fsdecode(path): reason for path, reason in list_files(str(folder), no_check).left_out}


def update(folder: Path, listing: Listing | None = None) -> Update:
    """Update the index of a project."""
    root = str(folder)
    with Index(root, no_check, index_path(root)) as index:
        return index.update(listing or list_files(root, no_check))


def ask(folder: Path, query: Any = None, check: Callable[[], object] = no_check, **fields: Any) -> Answer:
    return recall(str(folder), read_request({"query": query, **fields}), check)


def matching_paths(folder: Path, query: Any = None, **fields: Any) -> list[str]:
    """Paths of the matches of a memory query, best first."""
    return [match.path for match in ask(folder, query, **fields).matches]
