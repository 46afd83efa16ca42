"""The packages import in one direction only, and only one uses the operating system."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import llc
from llc.runtime.host import protocol

ROOT = Path(__file__).parents[1]
# The folders from which a folder may import (see design).
MAY_IMPORT = {
    "ir": {"ir"},
    "stdlib": {"stdlib"},
    "frontend": {"frontend", "ir", "stdlib"},
    "vm": {"vm", "ir"},
    "runtime": {"runtime", "frontend", "vm", "ir", "stdlib", ""},
}
# Only the runtime uses clocks, processes, randomness, the environment and the network.
OPERATING_SYSTEM = {
    "anthropic", "asyncio", "fcntl", "http", "multiprocessing", "random", "secrets", "select", "selectors",
    "signal", "socket", "subprocess", "tempfile", "time", "urllib",
}  # fmt: skip
WORLDLY_NAMES = {("os", "environ"), ("os", "getenv"), ("os", "system"), ("datetime", "now")}
# The frontend may only search and read files that the user named.
MAY_USE_OS = {"frontend/source/files.py"}


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """The imports, attributes of names and calls of `open` of a module, which is parsed once."""
    return tuple(
        node
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        or (isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Name, ast.Attribute)))
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open")
    )


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """The imports of a module: absolute names, and our own as `.folder`."""
    package = path.parent.relative_to(ROOT).parts
    for node in nodes(path):
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


# The order of the sub-packages (see design); each imports only those before it. A module counts as a package
# here.
ORDER = {
    "frontend": (
        *("source", "shell", "template", "loop", "sexp", "core", "tasks", "expand", "lower"),
        *("link", "compile"),
    ),
    "vm": (
        *("values", "primitives", "code", "machine"),
        *("jit.model", "jit.analysis", "jit.codegen", "jit.runtime", "tiered"),
    ),
    "runtime": (
        *("host", "journal", "runs", "ledger", "database", "project", "models", "memory", "trees", "effects"),
        *("execution", "recovery", "recordings", "graph", "terminal", "inspection", "report", "ui", "launch"),
        *("authoring", "cli"),
    ),
}


def _names() -> dict[str, Path]:
    """Every module by its dotted name; a package by the name of its folder."""
    return {
        ".".join(
            (path if path.stem != "__init__" else path.parent).relative_to(ROOT).with_suffix("").parts
        ): path
        for folder in (*MAY_IMPORT, "stdlib")
        for path in modules(folder)
    }


def _imported(path: Path, names: dict[str, Path]) -> Iterator[tuple[str, int]]:
    """Our modules that a module imports, at any position, with the line."""
    package = path.parent.relative_to(ROOT).parts
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            stem = ".".join((*base, *(node.module or "").split("."))).strip(".")
            for alias in node.names:
                target = f"{stem}.{alias.name}".strip(".")
                yield (target if target in names else stem), node.lineno


NAMES = _names()


@pytest.fixture(scope="module")
def imported() -> dict[str, dict[str, int]]:
    """For every module, the modules that it imports, each with the line."""
    return {
        name: {target: line for target, line in _imported(path, NAMES) if target in NAMES and target != name}
        for name, path in NAMES.items()
    }


def _package(name: str) -> tuple[str, str] | None:
    """The folder of a module and its sub-package in `ORDER`."""
    folder, _, rest = name.partition(".")
    known = (
        package for package in ORDER.get(folder, ()) if rest == package or rest.startswith(package + ".")
    )
    return next(((folder, package) for package in known), None)


def test_every_module_is_in_a_package_of_the_order() -> None:
    """A new sub-package needs a position in `ORDER`."""
    parents = {"frontend", "vm", "vm.jit", "runtime"}
    missing = [name for name in NAMES if name.split(".")[0] in ORDER and _package(name) is None]
    assert set(missing) <= parents


def test_a_package_imports_only_lower_ones(imported: dict[str, dict[str, int]]) -> None:
    """All imports count: at the top, in functions, and for type checking."""
    wrong = []
    for name, targets in imported.items():
        for target, line in targets.items():
            mine, theirs = _package(name), _package(target)
            if mine is not None and theirs is not None and mine[0] == theirs[0]:
                order = ORDER[mine[0]]
                if order.index(theirs[1]) > order.index(mine[1]):
                    wrong.append(f"{NAMES[name].relative_to(ROOT)}:{line} imports {target}")
    assert not wrong, "imports of a higher package:\n" + "\n".join(wrong)


def test_there_are_no_import_cycles(imported: dict[str, dict[str, int]]) -> None:
    """Neither between modules of one package, nor by imports in functions or for type checking."""
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        pytest.fail("modules that import each other: " + " <- ".join(error.args[1]))


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_a_folder_imports_only_what_it_may(folder: str) -> None:
    """`frontend` and `vm` do not import each other, `ir` imports neither, only `runtime` imports all."""
    assert modules(folder)
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules(folder)
        for name, line in imports(path)
        if name.startswith(".") and name[1:] not in MAY_IMPORT[folder] and (ROOT / name[1:]).is_dir()
    ]
    assert not wrong


@pytest.mark.parametrize("folder", ["ir", "frontend", "vm"])
def test_only_the_runtime_uses_the_operating_system(folder: str) -> None:
    """No module outside `runtime` imports processes, clocks, randomness, sockets or the client."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules(folder)
        for name, line in imports(path)
        if name.split(".")[0] in OPERATING_SYSTEM
        or (name.split(".")[0] == "os" and str(path.relative_to(ROOT)) not in MAY_USE_OS)
    ]
    wrong += [
        f"{path.relative_to(ROOT)}:{node.lineno} uses {node.value.id}.{node.attr}"
        for path in modules(folder)
        for node in nodes(path)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in WORLDLY_NAMES
    ]
    assert not wrong


# Modules that only `runtime/host` may import, and the module to use instead.
HOST = {
    "os": "files, pipes, processes, environment or terminal",
    "time": "clock",
    "subprocess": "processes",
    "multiprocessing": "processes",
    "resource": "processes",
    "threading": "threads",
    "queue": "threads",
    "signal": "signals",
    "socket": "pipes",
    "select": "pipes",
    "selectors": "pipes",
    "random": "environment",
    "secrets": "environment",
    "platform": "environment",
    "tempfile": "files",
    "shutil": "files",
    "fcntl": "files",
    "mmap": "files",
    "pty": "terminal",
    "termios": "terminal",
    "tty": "terminal",
}
# Queries of the file system that `os.path` answers too.
FILE_QUERIES = {
    "exists", "getmtime", "getsize", "isdir", "isfile", "islink", "lexists", "realpath", "samefile",
}  # fmt: skip
# The frontend's own access to source files, which does not depend on the runtime.
SOURCE_FILES = "frontend/source/files.py"


def host_bypasses(path: Path) -> Iterator[str]:
    """The positions in a module that use the operating system without `runtime/host`."""
    where = path.relative_to(ROOT)
    swapped = {part: set(protocol.PARTS[part]) for part in protocol.PARTS}
    for node in nodes(path):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    part = HOST.get(alias.name.partition(".")[0])
                    if part is not None and not (alias.name == "os.path" and alias.asname is None):
                        yield f"{where}:{node.lineno} imports {alias.name}: use host.{part}"
            case ast.ImportFrom(level=0, module=str(module), names=names):
                part = HOST.get(module.partition(".")[0])
                asked = [alias.name for alias in names if module != "os.path" or alias.name in FILE_QUERIES]
                if part is not None and asked:
                    yield f"{where}:{node.lineno} imports {', '.join(asked)} of {module}: use host.{part}"
            case ast.ImportFrom(module=str(module), names=names) if (
                module.startswith("host.") and (part := module.removeprefix("host.")) in swapped
            ):
                for name in (alias.name for alias in names):
                    if name in swapped[part]:
                        yield f"{where}:{node.lineno} imports {name} by name: call host.{part}.{name}"
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name != "path":
                yield f"{where}:{node.lineno} uses os.{name}: use host.{HOST['os']}"
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="os"), attr="path"), attr=name) if (
                name in FILE_QUERIES
            ):
                yield f"{where}:{node.lineno} uses os.path.{name}: use host.files.{name}"
            case ast.Call(func=ast.Name(id="open")) if where.parts[0] == "runtime":
                yield f"{where}:{node.lineno} calls open: use host.files.open"


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_only_the_host_reaches_the_operating_system(folder: str) -> None:
    """Files, clock, processes and so on are used through `runtime/host`, also by imports in functions."""
    wrong = [
        text
        for path in modules(folder)
        if not path.is_relative_to(ROOT / "runtime/host") and path != ROOT / SOURCE_FILES
        for text in host_bypasses(path)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", llc.__all__)
def test_every_public_name_exists(name: str) -> None:
    """Each name in `__all__` can be imported."""
    assert getattr(llc, name) is not None


def test_records_are_declared_in_one_way() -> None:
    """Record classes use the decorators of `ir.records`, so that attrs generates no method twice."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in MAY_IMPORT
        for path in modules(folder)
        if path != ROOT / "ir" / "records.py"
        for node in nodes(path)
        if isinstance(node, ast.Attribute)
        and node.attr in ("frozen", "define")
        and ast.unparse(node.value) == "attrs"
    ]
    assert not wrong
