"""Golden cases: a source and the complete output of the tool for it.

A case is a folder in `golden/<area>/` with `loop.yaml` and optional worlds `world-<name>.yaml`. `loops/` has
the loops of the seed, `rules/` those of `loops.md`, `warnings/` loops with warnings, and `errors/` invalid
loops. Compared are `fsm.yaml`, `ir.txt`, `bytecode.txt` (for the cases in LISTED), `warnings.txt` (if there
are any), `errors.txt` (instead of all these, for an invalid loop), and for each world `trace-<name>.jsonl`,
the events of a run and its exit code. `pytest --update` rewrites them.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden_cases import CASES, GOLDEN, IDS, SOURCE, compile_case, parts, run_world, trace_of, worlds

from llc.frontend.compile import compile_text
from llc.frontend.loop.fsm_printer import print_fsm
from llc.ir.diagnostics import CompileError, render_all
from llc.ir.text import parse_program, print_program
from llc.ir.verify import verify
from llc.vm.code.disassembly import disassemble
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.code.lift import lift
from llc.vm.code.verify import verify_image

# Names of the seed in its FSMs, and their names here.
RENAMED = {
    "goal": {"goal-no-type-errors-in-src": "goal-no-type-errors"},
    "convergence": {},
    "invariants": {"_tests-pass": "_tests", "_lint-clean": "_lint", "_types-valid": "_types"},
    "imperative": {},
}

# Cases whose bytecode listing is compared; together they have every opcode that a loop uses. Round trips of
# the code are tested for all cases (`test_forms_of_a_case_are_equivalent`).
LISTED = ("ask", "evaluate-convergence", "evaluate-output-json", "example-3-smart-fix", "namespaces")
SPEC = GOLDEN.parents[1] / "spec"
# Diagnostics without a case, with the reason.
WITHOUT_A_CASE = {
    "circular-inheritance": "a case has one file",
    "not-imported": "`llc import` gives it",
    "outside-project": "a case has one file",
    "bad-override": "a case has no options",
    "unknown-context": "a case has no options",
    "unreadable-file": "there is no text then",
    "file-too-large": "it takes 16 MiB",
    "too-many-findings": "it takes hundreds of others",
    "damaged-lock": "it stands in another file",
    "nul-in-command": "YAML refuses the character first",
    "unknown-agent": "a case has no project",
    "missing-capability": "a case has no project",
    "unpriced-model": "a case has no project",
    "no-delay": "only `llc validate` warns",
    "errors-not-routed": "only `llc validate` warns",
}


def outputs_of(case: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """Output of the tool for a case: file names and texts."""
    try:
        compiled = compile_case(case)
    except CompileError as error:
        yield "errors.txt", str(error) + "\n"
        return
    if compiled.diagnostics:
        yield "warnings.txt", render_all(compiled.diagnostics, compiled.sources) + "\n"
    yield "fsm.yaml", print_fsm(compiled.loop)
    yield "ir.txt", print_program(compiled.program)
    if case.name in LISTED:
        yield "bytecode.txt", disassemble(emit(compiled.program))
    for world in worlds(case):
        events = run_world(world, folder / world.stem, monkeypatch)
        lines = (json.dumps(event, ensure_ascii=False) + "\n" for event in events)
        yield trace_of(world).name, "".join(lines)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_golden(case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: bool) -> None:
    """The output of the tool for a case equals its golden files."""
    printed = dict(outputs_of(case, tmp_path, monkeypatch))
    expected = {
        path.name: path.read_text("utf-8")
        for path in case.iterdir()
        if path.name != SOURCE and not path.name.startswith("world-") and path not in parts(case)
    }
    if update:
        for name in expected.keys() - printed.keys():
            (case / name).unlink()
        for name, text in printed.items():
            (case / name).write_text(text, "utf-8")
        return
    differences = [
        line
        for name in sorted(expected.keys() | printed.keys())
        for line in difflib.unified_diff(
            expected.get(name, "").splitlines(),
            printed.get(name, "").splitlines(),
            f"{case.name}/{name}" if name in expected else f"{name} (missing)",
            "printed now",
            lineterm="",
        )
    ]
    assert not differences, "\n".join([*differences[:200], "to accept: pytest --update tests/test_golden.py"])
    assert expected.keys() == printed.keys()


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_forms_of_a_case_are_equivalent(case: Path) -> None:
    """The IR round-trips through text, the image through bytes, and the FSM form compiles to the same IR."""
    try:
        compiled = compile_case(case)
    except CompileError:
        return
    program = compiled.program
    assert parse_program(print_program(program), "ir.txt") == program
    assert not [finding for finding in verify(program) if finding.is_error]
    image = emit(program)
    again = Image.from_bytes(image.to_bytes())
    assert disassemble(again) == disassemble(image)
    assert again.program_hash == image.program_hash
    assert not [finding for finding in verify_image(again) if finding.is_error]
    assert emit(lift(again)).program_hash == image.program_hash
    if compiled.loop.paradigm != "convergence":  # there the paradigm defines the meaning of `previous`
        with contextlib.chdir(case):
            fsm = compile_text(print_fsm(compiled.loop), "fsm.yaml")
        assert fsm.program.functions == program.functions


@pytest.mark.parametrize("paradigm", RENAMED)
def test_paradigm_becomes_the_fsm_of_the_seed(paradigm: str) -> None:
    """The text is equal, except for comments and the names of `loops.md` 16."""
    printed = (GOLDEN / "loops" / paradigm / "fsm.yaml").read_text("utf-8")
    for ours, seeds in RENAMED[paradigm].items():
        printed = printed.replace(ours, seeds)
    shown = (GOLDEN / "loops" / f"{paradigm}-fsm" / SOURCE).read_text("utf-8")
    assert printed == re.sub(r" +#.*", "", shown)


def test_only_error_cases_are_invalid() -> None:
    """The loops in `errors/` are invalid, all others are valid; an empty folder would pass unnoticed."""
    refused = [case for case in CASES if (case / "errors.txt").exists()]
    assert refused == [case for case in CASES if case.parent.name == "errors"]
    assert len(refused) >= 30
    assert len(CASES) - len(refused) >= 60


def test_every_diagnostic_has_a_case() -> None:
    """Each id in the tables of the chapters is in the output of a case, or no loop text can cause it."""
    listed = listed_in("loops.md") | listed_in("interpolation.md")
    shown = set()
    for case in CASES:
        for name in ("errors.txt", "warnings.txt"):
            if (case / name).exists():
                text = (case / name).read_text("utf-8")
                shown.update(re.findall(r"^(?:error|warning)\[([a-z0-9-]+)\]", text, re.MULTILINE))
    assert listed - shown == set(WITHOUT_A_CASE)
    assert shown <= listed | listed_in("linking.md")


def listed_in(chapter: str) -> set[str]:
    """The ids in a chapter's table of diagnostics."""
    text = (SPEC / chapter).read_text("utf-8").partition("\n## Diagnostics")[2]
    rows = re.findall(r"^\|(.*?)\|", text, re.MULTILINE)
    return {id for row in rows for id in re.findall(r"`([a-z0-9-]+)`", row)}
