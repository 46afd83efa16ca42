"""Golden flows: a source, a world and the output of the tool for them.

A case is a folder in `golden/flows/` with `flow.sexp`, `world.yaml` and optional further files of its
program. Compared are the core forms (`expanded.txt`), the states (`ir.txt`, without spans), and the events of
a run in that world with its exit code (`trace.jsonl`). `pytest --update` rewrites them.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden_cases import GOLDEN, comparable, parts

from llc.frontend.compile import Compiled, compile_file
from llc.frontend.core.printer import expanded_text
from llc.ir.text import parse_program, print_program
from llc.ir.verify import verify
from llc.runtime.launch import run as launch_run
from llc.runtime.project import options
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.code.lift import lift
from llc.vm.code.verify import verify_image

SOURCE, WORLD = "flow.sexp", "world.yaml"
CASES = sorted(path.parent for path in GOLDEN.glob(f"flows/*/{SOURCE}"))
IDS = [case.name for case in CASES]


def further_files(case: Path) -> list[Path]:
    """Further files of a case that are part of its program."""
    return [path for path in parts(case) if path.name != SOURCE]


def compile_case(case: Path) -> Compiled:
    with contextlib.chdir(case):
        return compile_file(SOURCE)


def trace(case: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The journal of a run in the world of the case, followed by the exit code."""
    for path in (case / SOURCE, case / WORLD, *further_files(case)):
        shutil.copy(path, folder)
    values = options.Values(SOURCE, script=WORLD, quiet=True)
    with monkeypatch.context() as patch, (folder / "stderr").open("w") as stderr:
        patch.chdir(folder)
        patch.setattr("sys.stderr", stderr)
        code = launch_run.run(values)
    (journal,) = folder.glob(".loops/.history/*/*.events.jsonl")
    events = [comparable(json.loads(line)) for line in journal.read_text("utf-8").splitlines()]
    return "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in [*events, {"exit_code": code}])


def prints(case: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    compiled = compile_case(case)
    assert compiled.diagnostics == ()
    assert compiled.core is not None
    yield "expanded.txt", expanded_text(compiled.core)
    yield "ir.txt", print_program(compiled.program, spans=False)
    yield "trace.jsonl", trace(case, folder, monkeypatch)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_golden(case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: bool) -> None:
    """The output of the tool for a case equals its golden files."""
    printed = dict(prints(case, tmp_path, monkeypatch))
    if update:
        for name, text in printed.items():
            (case / name).write_text(text, "utf-8")
    expected = {path.name: path.read_text("utf-8") for path in case.iterdir()}
    differences = [
        line
        for name, text in printed.items()
        for line in difflib.unified_diff(
            expected.get(name, "").splitlines(), text.splitlines(), name, "printed now", lineterm=""
        )
    ]
    command = "to accept: pytest --update tests/test_golden_flows.py"
    assert not differences, "\n".join([*differences[:200], command])
    assert expected.keys() == {SOURCE, WORLD, *(path.name for path in further_files(case)), *printed}


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_forms_of_a_case_are_equivalent(case: Path) -> None:
    """The IR round-trips through text, the image through bytes; both verifiers report nothing."""
    program = compile_case(case).program
    assert parse_program(print_program(program), "ir.txt") == program
    assert list(verify(program)) == []
    image = emit(program)
    again = Image.from_bytes(image.to_bytes())
    assert again.program_hash == image.program_hash
    assert list(verify_image(again)) == []
    assert emit(lift(again)).program_hash == image.program_hash


def test_there_are_cases() -> None:
    """An empty folder would pass unnoticed."""
    assert len(CASES) >= 5
