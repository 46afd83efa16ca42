"""The success proof agrees with random runs, for the loop gallery and mutants of one loop."""

from __future__ import annotations

import random
import textwrap
from pathlib import Path
from typing import Any

import pytest

from llc.frontend.compile import compile_file, compile_text
from llc.frontend.lower.proof import information_in, proof_findings
from llc.frontend.lower.success_proof import ALL, GOOD, NOTHING, OUTPUT
from llc.ir.diagnostics import CompileError
from llc.ir.nodes import Program
from llc.vm.code.emit import emit
from llc.vm.machine.machine import Effect
from llc.vm.tiered import Machine

LOOPS = Path(__file__).parents[1] / "golden" / "loops"
# Loops of the gallery with an agent, and their unproven successes: those that a model judges, and those of a
# metric that has stopped changing.
GALLERY = {
    "convergence": ["done"],
    "evaluate-llm-default-schema": ["done"],
    "evaluate-llm-structured": ["done"],
    "example-1-test-until-pass": [],
    "example-2-fix-types": [],
    "example-3-smart-fix": ["escalate"],
    "example-4-reduce-errors": ["done"],
    "example-5-ci-checks": [],
    "example-6-safe-refactor": ["manual_check", "done"],
    "fsm": ["done"],
    "goal": ["done"],
    "handoff": ["done"],
    "imperative": [],
    "integration-ll-auto": [],
    "invariants": [],
    "route-full": ["done"],
}

HEAD = "name: mutant\nmax_iterations: 6\ninitial: check\nstates:\n"
SOUND = """
check: {action: "pytest -q", on_success: done, on_failure: fix}
fix: {action: "make the tests pass", action_type: prompt, next: check}
done: {terminal: true}
"""
# Loops that reach `done` without a passed check.
MUTANTS = {
    "the agent leads to the end": SOUND.replace("next: check", "next: done"),
    "the agent's exit code leads to the end": SOUND.replace(
        "next: check", "evaluate: {type: exit_code}, on_success: done, on_failure: check"
    ),
    "the agent's words lead to the end": SOUND.replace(
        "next: check",
        "evaluate: {type: output_contains, pattern: '1'}, on_success: done, on_failure: check",
    ),
    "the agent's error leads to the end": SOUND.replace("next: check", "next: check, on_error: done"),
    "a failing check leads to the end": SOUND.replace("on_failure: fix", "on_failure: confirm")
    + "confirm: {action: 'fix it', action_type: prompt, next: again}\n"
    + "again: {action: 'pytest -q', on_success: done, on_failure: done}\n",
    "an error of the check leads to the end": SOUND.replace(
        "on_failure: fix", "on_failure: fix, on_error: done"
    ),
    "any other verdict leads to the end": SOUND.replace(
        "on_success: done, on_failure: fix", "route: {success: fix, _: done}"
    ),
    "the check's result is not looked at": SOUND.replace("next: check", "next: look")
    + "look: {action: 'pytest -q', next: done}\n",
    "work after the check": SOUND.replace("on_success: done", "on_success: polish")
    + "polish: {action: '/polish', evaluate: {type: exit_code}, on_success: done, on_failure: done}\n",
    "a command after the check": SOUND.replace("on_success: done", "on_success: polish")
    + "polish: {action: 'sed -i s/a/b/ x', next: done}\n",
    "a model judges": SOUND.replace(
        'action: "pytest -q",', 'action: "git diff", evaluate: {type: llm_structured},'
    ),
    "the exit code of `|| true`": SOUND.replace("pytest -q", "pytest -q || true"),
    "the exit code of `; echo`": SOUND.replace("pytest -q", "pytest -q; echo done"),
    "a command that tells nothing": SOUND.replace("pytest -q", "true"),
    "an output that tells nothing": SOUND.replace(
        'action: "pytest -q",', 'action: "echo 1", evaluate: {type: output_numeric, operator: eq, target: 1},'
    ),
    "the verdict about an older output": SOUND.replace("next: check", "next: look").replace(
        "on_failure: fix", "on_failure: save"
    )
    + "save: {action: 'git stash', capture: saved, next: fix}\n"
    + "look: {action: 'git add .', evaluate: {type: exit_code, source: '${captured.saved.exit_code}'}, "
    "on_success: done, on_failure: fix}\n",
    "a metric that stalls": SOUND.replace(
        "on_success: done, on_failure: fix",
        "evaluate: {type: convergence, target: 0}, route: {target: done, progress: fix, stall: done}",
    ),
    "a person agrees": SOUND.replace("next: check", "next: agree")
    + "agree: {action: 'Is it good?', action_type: ask, choices: ['1', '0'], route: {'1': done, '0': fix}}\n",
    "a check on one of two ways": SOUND.replace("next: check", "next: which")
    + "which: {action: 'test -f setup.py', on_success: check, on_failure: skip}\n"
    + "skip: {action: 'another thing', action_type: prompt, next: done}\n",
    "the next cycle's check": SOUND.replace("next: check", "next: last")
    + "last: {action: 'pytest -q', on_success: fix, on_failure: done}\n",
}  # fmt: skip
KEPT = {
    "as it is": SOUND,
    "with a second check": SOUND.replace("on_success: done", "on_success: lint")
    + "lint: {action: 'ruff check .', on_success: done, on_failure: fix}\n",
    "with a number": SOUND.replace(
        'action: "pytest -q",',
        'action: "pytest -q | grep -c x || true", evaluate: {type: output_numeric, operator: eq, target: 1},',
    ),
    "with JSON": SOUND.replace(
        'action: "pytest -q",', 'action: "count", evaluate: {type: output_json, path: ".", target: 1},'
    ),
    "by any verdict but failure": SOUND.replace(
        "on_success: done, on_failure: fix", "route: {failure: fix, _: done}"
    ),
    "with a failure that ends": SOUND + "lost: {terminal: true, status: failure}\n",
    "the agent only before a failure": "check: {action: 'pytest -q', on_success: done, on_failure: fix}\n"
    "fix: {action: '/report', next: lost}\nlost: {terminal: true, status: failure}\ndone: {terminal: true}\n",
}  # fmt: skip
SHELLS = {
    "true": NOTHING,
    "echo ok": NOTHING,
    "exit 1": NOTHING,
    "echo $?": OUTPUT,
    "echo $(wc -l < x)": OUTPUT,
    "pytest || true": OUTPUT,
    "pytest ||:": OUTPUT,
    "pytest; exit 0": OUTPUT,
    "pytest; echo $?": OUTPUT,
    "pytest &\ntrue": OUTPUT,
    "pytest && echo ok": ALL,
    "pytest | tail -3": ALL,
    "pytest || exit 1": ALL,
    "! grep -q x y": ALL,
    "echo true | grep -q true && pytest": ALL,
}


def loop_of(states: str) -> str:
    return HEAD + textwrap.indent(states.strip() + "\n", "  ")


def unproven_states(program: Program) -> list[str]:
    """The states that end with an unproven success."""
    return [diagnostic.message.split("`")[1] for diagnostic in proof_findings(program, "warning")]


class Run:
    """A random run; `is_unproven` if it succeeded after an agent's work without a passed check."""

    def __init__(self, machine: Machine, chance: random.Random) -> None:
        self.chance = chance
        self.has_worked = self.is_dirty = self.has_output = self.is_unproven = False
        self.information = ALL
        outcome = machine.resume()
        while True:
            for kind, fields in machine.take_notes():
                self.note(kind, fields)
            if not isinstance(outcome, Effect):
                break
            outcome = machine.resume(self.answer(outcome))

    def answer(self, effect: Effect) -> dict[str, Any]:
        chance = self.chance
        done = {
            "output": chance.choice(["0", "1", "2", ""]),
            "stderr": "",
            "exit_code": chance.choice([0, 0, 1, 2, 127]),
        }
        done |= {"duration_ms": 1, "elapsed_ms": 1}
        if effect.kind == "shell":
            self.is_dirty, self.has_output = self.has_worked, True
            self.information = information_in(effect.args["command"])
        elif effect.kind == "agent":
            self.has_worked, self.is_dirty, self.has_output = True, True, False
        elif effect.kind == "evaluate":
            self.has_output = False
            verdict = chance.choice(effect.args["schema"]["properties"]["verdict"]["enum"])
            return {
                "reply": {"verdict": verdict, "confidence": 0.9, "reason": "-"},
                "duration_ms": 1,
                "elapsed_ms": 1,
            }
        elif effect.kind == "jq":
            return {"value": chance.choice([0, 1])}
        elif effect.kind == "env":
            return {"values": dict.fromkeys(effect.args["names"])}
        elif effect.kind == "clock":
            return {"time": "2026-01-01T00:00:00.000Z", "elapsed_ms": 1}
        return done

    def note(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == "evaluate":
            needed = ALL if fields["type"] == "exit_code" else OUTPUT
            stale = fields["details"].get("source") is not None or fields["state"] == "look"
            if self.has_output and fields["verdict"] in GOOD and self.information >= needed and not stale:
                self.is_dirty = False
            self.has_output = False
        elif kind == "loop_complete" and fields["status"] == "success":
            self.is_unproven = self.has_worked and self.is_dirty


def has_unproven_run(program: Program, runs: int = 400) -> bool:
    """Whether a random run of the program succeeds without proof."""
    chance = random.Random(7)
    image = emit(program)
    return any(Run(Machine(image), chance).is_unproven for _ in range(runs))


@pytest.mark.parametrize("name", sorted(GALLERY))
def test_the_gallery(name: str) -> None:
    """A warning is given exactly if a random run shows an unproven success."""
    program = compile_file(str(LOOPS / name / "loop.yaml")).program
    assert unproven_states(program) == GALLERY[name]
    assert has_unproven_run(program) == bool(GALLERY[name])


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_bypassed_check_is_reported(name: str) -> None:
    program = compile_text(loop_of(MUTANTS[name])).program
    assert unproven_states(program) == ["done"]
    assert has_unproven_run(program)


@pytest.mark.parametrize("name", sorted(KEPT))
def test_remaining_check_is_a_proof(name: str) -> None:
    program = compile_text(loop_of(KEPT[name])).program
    assert unproven_states(program) == []
    assert not has_unproven_run(program)


@pytest.mark.parametrize("command", SHELLS)
def test_information_in_a_command(command: str) -> None:
    assert information_in(command) == SHELLS[command]


def test_a_loop_can_require_its_proof() -> None:
    """`require: proof` turns the warning of `validate` into an error; the message names both positions."""
    text = "require: proof\n" + loop_of(MUTANTS["the agent leads to the end"])
    with pytest.raises(CompileError) as refused:
        compile_text(text)
    (diagnostic,) = refused.value.diagnostics
    assert (diagnostic.id, diagnostic.severity) == ("unproven-success", "error")
    assert diagnostic.related[0][1] == "the agent works in `fix`"
    assert compile_text("require: proof\n" + loop_of(SOUND)).diagnostics == ()
