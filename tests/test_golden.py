"""Golden cases: a source and the tool's complete output for it.

A case is a folder in `golden/<area>/` that holds `loop.yaml`, and perhaps worlds `world-<name>.yaml`.
`loops/` are those of the seed, `rules/` those of `loops.md`, `warnings/` compile with complaints, and
`errors/` are refused.
What is compared: `fsm.yaml`, `ir.txt`, `bytecode.txt` (for the cases in LISTED), `warnings.txt` (only where
there are any), `errors.txt` (instead of all these, where the loop is refused), and for each world
`trace-<name>.jsonl`, the events of a run and its exit code. `pytest --update` rewrites them.
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

# The seed's names in its FSMs, for ours.
RENAMED = {
    "goal": {"goal-no-type-errors-in-src": "goal-no-type-errors"},
    "convergence": {},
    "invariants": {"_tests-pass": "_tests", "_lint-clean": "_lint", "_types-valid": "_types"},
    "imperative": {},
}

# Cases whose bytecode listing is compared; together they have every opcode that a loop uses. Round trips of
# the code are tested for all cases (`test_every_form_of_a_case_says_the_same`).
LISTED = ("ask", "evaluate-convergence", "evaluate-output-json", "example-3-smart-fix", "namespaces")
SPEC = GOLDEN.parents[1] / "spec"
# Findings that no case shows, with the reason.
NOT_SHOWN = {
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


def prints(case: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """What the tool prints for a case: file names and texts."""
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
    """What the tool prints for a case is what stands beside it."""
    printed = dict(prints(case, tmp_path, monkeypatch))
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
def test_every_form_of_a_case_says_the_same(case: Path) -> None:
    """The IR reads back from its text, the image from its bytes, the FSM form compiles to the same IR."""
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
    if compiled.loop.paradigm != "convergence":  # there `previous` means what the paradigm says
        with contextlib.chdir(case):
            fsm = compile_text(print_fsm(compiled.loop), "fsm.yaml")
        assert fsm.program.functions == program.functions


@pytest.mark.parametrize("paradigm", RENAMED)
def test_a_paradigm_becomes_the_fsm_that_the_seed_shows(paradigm: str) -> None:
    """To the letter, but for comments and the names that `loops.md` 16 settles."""
    printed = (GOLDEN / "loops" / paradigm / "fsm.yaml").read_text("utf-8")
    for ours, seeds in RENAMED[paradigm].items():
        printed = printed.replace(ours, seeds)
    shown = (GOLDEN / "loops" / f"{paradigm}-fsm" / SOURCE).read_text("utf-8")
    assert printed == re.sub(r" +#.*", "", shown)


def test_refused_cases_stand_apart() -> None:
    """The loops in `errors/` are refused, all others are not; an empty folder would pass in silence."""
    refused = [case for case in CASES if (case / "errors.txt").exists()]
    assert refused == [case for case in CASES if case.parent.name == "errors"]
    assert len(refused) >= 30
    assert len(CASES) - len(refused) >= 60


def test_every_finding_is_shown_in_a_case() -> None:
    """Each id that the chapters list is in the output of a case, or a loop's text cannot cause it."""
    listed = listed_in("loops.md") | listed_in("interpolation.md")
    shown = set()
    for case in CASES:
        for name in ("errors.txt", "warnings.txt"):
            if (case / name).exists():
                text = (case / name).read_text("utf-8")
                shown.update(re.findall(r"^(?:error|warning)\[([a-z0-9-]+)\]", text, re.MULTILINE))
    assert listed - shown == set(NOT_SHOWN)
    assert shown <= listed | listed_in("linking.md")


def listed_in(chapter: str) -> set[str]:
    """The ids in a chapter's table of findings."""
    text = (SPEC / chapter).read_text("utf-8").partition("\n## Diagnostics")[2]
    rows = re.findall(r"^\|(.*?)\|", text, re.MULTILINE)
    return {id for row in rows for id in re.findall(r"`([a-z0-9-]+)`", row)}
