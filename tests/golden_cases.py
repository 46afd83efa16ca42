"""The golden cases: their folders, how their worlds are run, and which fields of a run are compared.

A case may contain further files of its program: `*.sexp`, `part-*.yaml`. A world file may start with the
command that runs it, `# llc run loop.yaml --max-iterations 2`, whose options then apply.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from llc.frontend.compile import Compiled, compile_file
from llc.runtime.cli import parse, subcommands
from llc.runtime.launch import run as launch_run
from llc.runtime.project import load, options
from llc.runtime.project.options import Values

GOLDEN = Path(__file__).parent / "golden"
SOURCE = "loop.yaml"
CASES = sorted(path.parent for path in GOLDEN.glob(f"*/*/{SOURCE}"))
IDS = [f"{case.parent.name}/{case.name}" for case in CASES]
COMMAND = f"# llc run {SOURCE} "
# Fields that differ between runs or machines, or that only repeat `ir.txt`.
OMITTED = ("ts", "crc", "run", "llc", "path", "script", "program_hash")


def worlds(case: Path) -> list[Path]:
    return sorted(case.glob("world-*.yaml"))


def parts(case: Path) -> list[Path]:
    """Further files of the program of a case."""
    return sorted([*case.glob("*.sexp"), *case.glob("part-*.yaml"), *case.glob("*.lock")])


def trace_of(world: Path) -> Path:
    """The file with the events of a world."""
    return world.with_name(f"trace-{world.stem.removeprefix('world-')}.jsonl")


def values_of(world: Path) -> Values:
    """The options with which a world is run."""
    first = world.read_text("utf-8").partition("\n")[0]
    words = shlex.split(first.removeprefix(COMMAND)) if first.startswith(COMMAND) else []
    words = [SOURCE, "--script", world.name, "--quiet", "--json", *words]
    given = parse.read(f"{world}: llc run", subcommands.find("run"), words)
    assert given is not None
    return options.values(given.pop("loop"), given)


def compile_case(case: Path, values: Values | None = None) -> Compiled:
    """The loop of a case, compiled with the options of a world. Raises CompileError."""
    with contextlib.chdir(case):
        return compile_file(SOURCE) if values is None else compile_file(SOURCE, load.compile_options(values))


def run_world(world: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The journal of `llc run` in a separate folder, followed by the exit code.

    The only JSON object on stdout must agree with the last event of the journal.
    """
    folder.mkdir()
    for file in (world.with_name(SOURCE), world, *parts(world.parent)):
        shutil.copy(file, folder)
    out, err = folder / "stdout", folder / "stderr"
    with monkeypatch.context() as patch, out.open("w") as stdout, err.open("w") as stderr:
        patch.chdir(folder)
        patch.setattr("sys.stdout", stdout)
        patch.setattr("sys.stderr", stderr)
        code = launch_run.run(values_of(world))
    journals = list(folder.glob(".loops/.history/*/*.events.jsonl"))
    assert len(journals) == 1, err.read_text("utf-8")
    events = [comparable(json.loads(line)) for line in journals[0].read_text("utf-8").splitlines()]
    outcome = comparable(json.loads(out.read_text("utf-8")))
    assert {"event": "run_end", **outcome, "program": None} == {**events[-1], "program": None}
    return [*events, {"exit_code": code}]


def comparable(event: dict[str, Any]) -> dict[str, Any]:
    """An event without omitted fields; a schema is in `ir.txt` once, not in each call."""
    event = {name: value for name, value in event.items() if name not in OMITTED}
    if event.get("kind") == "evaluate" and "args" in event:
        event["args"] = {name: value for name, value in event["args"].items() if name != "schema"}
    return event
