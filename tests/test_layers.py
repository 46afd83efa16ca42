"""The folders depend on each other one way only, and the world is touched in one of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import llc

ROOT = Path(__file__).parents[1]
# design: which folders a folder may import.
MAY_IMPORT = {
    "ir": {"ir"},
    "stdlib": {"stdlib"},
    "frontend": {"frontend", "ir", "stdlib"},
    "vm": {"vm", "ir"},
    "runtime": {"runtime", "frontend", "vm", "ir", "stdlib", ""},
}
# Clocks, processes, randomness, the environment and the network are the runtime's alone.
WORLD = {
    "anthropic", "asyncio", "fcntl", "http", "multiprocessing", "random", "secrets", "select", "selectors",
    "signal", "socket", "subprocess", "tempfile", "time", "urllib",
}  # fmt: skip
WORLDLY_NAMES = {("os", "environ"), ("os", "getenv"), ("os", "system"), ("datetime", "now")}
# Reading a file that the user named, and finding it, is the frontend's work: all it wants of `os`.
MAY_USE_OS = {"frontend/source/files.py"}


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """What a module imports: absolute names, and ours as `.folder`."""
    package = path.parent.relative_to(ROOT).parts
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                yield node.module or "", node.lineno
                continue
            base = package[: len(package) - node.level + 1]
            names = (node.module or "").split(".") if node.module else []
            if not base and not names:
                yield from (("." + alias.name, node.lineno) for alias in node.names)
            else:
                yield "." + (*base, *names)[0], node.lineno


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_a_folder_imports_only_what_it_may(folder: str) -> None:
    """`frontend` and `vm` do not know each other, `ir` knows nobody, only `runtime` knows all."""
    assert modules(folder)
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules(folder)
        for name, line in imports(path)
        if name.startswith(".") and name[1:] not in MAY_IMPORT[folder] and (ROOT / name[1:]).is_dir()
    ]
    assert not wrong


@pytest.mark.parametrize("folder", ["ir", "frontend", "vm"])
def test_the_world_is_touched_only_by_the_runtime(folder: str) -> None:
    """No module outside `runtime` imports processes, clocks, randomness, sockets or the client."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules(folder)
        for name, line in imports(path)
        if name.split(".")[0] in WORLD
        or (name.split(".")[0] == "os" and str(path.relative_to(ROOT)) not in MAY_USE_OS)
    ]
    wrong += [
        f"{path.relative_to(ROOT)}:{node.lineno} uses {node.value.id}.{node.attr}"
        for path in modules(folder)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in WORLDLY_NAMES
    ]
    assert not wrong


@pytest.mark.parametrize("name", llc.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """What the package says it has can be had from it."""
    assert getattr(llc, name) is not None


def test_records_are_declared_in_one_way() -> None:
    """Classes of records take what they share from `ir.records`: attrs makes no method twice."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in MAY_IMPORT
        for path in modules(folder)
        if path != ROOT / "ir" / "records.py"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr in ("frozen", "define")
        and ast.unparse(node.value) == "attrs"
    ]
    assert not wrong
