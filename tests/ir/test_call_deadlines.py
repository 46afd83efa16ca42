"""An accepted mutant of a program with sub-loops never waits past an enclosing deadline.

The program calls a loop from a function of a loop, and each has a timeout. Mutants run in a world with a
moving clock; each deadline of an effect is compared with the timeouts of the loops.
"""

from __future__ import annotations

import random
import re

import pytest
from laws import tried

from llc.ir.diagnostics import CompileError
from llc.ir.text import parse_program
from llc.ir.verify import verify
from llc.vm.code.emit import emit
from llc.vm.machine.machine import Effect
from llc.vm.tiered import Machine

OUTER_MS, INNER_MS = 5000, 1200
OWN = f'add(get(now, "elapsed_ms"), {INNER_MS})'
PROGRAM = f"""
program lint entry main
meta {{"kind": "loop", "limits": {{"max_iterations": 3, "timeout_ms": {OUTER_MS}}},
      "loops": [{{"function": "inner", "name": "inner",
                 "limits": {{"max_steps": 6, "timeout_ms": {INNER_MS}}}}}]}}
function main() locals(iteration, lap, x, until)
  state /start
    iteration = 1
    lap = 1
    goto a
  state a
    perform sleep map("seconds", 1, "deadline_ms", {OUTER_MS}) -> x then b
  state b on fault -> c(x)
    until = min(4000, {OUTER_MS})
    call closure g(until)(7) -> x then c
  state c
    call closure nap({OUTER_MS})(9) -> x then end
  state end
    return x
function g(n) captures(/deadline) locals(x)
  state s
    call closure nap(/deadline)(n) -> x then t
  state t
    tailcall closure inner(/deadline)(plain(n), 1)
function nap(seconds) captures(/deadline) locals(answer)
  state start
    perform sleep without_nulls(map("seconds", seconds, "deadline_ms", /deadline)) -> answer then end
  state end
    return answer
function inner(x, y) captures(/outer) locals(steps, now, /deadline)
  state /start
    steps = 0
    perform clock {{}} -> now then /started
  state /started
    /deadline = min(or(/outer, {OWN}), {OWN})
    goto a
  state a
    branch ge(steps, 6) end b
  state b
    steps = add(steps, 1)
    call closure nap(min(or(/deadline, 9), /deadline))(x) -> now then c
  state c
    perform sleep map("seconds", 1, "deadline_ms", /deadline) -> now then a
  state end
    return 1
"""
WORDS = [
    "/deadline",
    "/outer",
    "until",
    "x",
    "n",
    "now",
    "null",
    "1",
    "9999",
    "4000",
    str(OUTER_MS),
    str(INNER_MS),
]
WORD = re.compile(
    r"(?<=[(\s,])(?:/deadline|/outer|until|null|\d{4}|x|n|now)(?=[),\s])|\b(?:min|or|plain|add|max)\b"
)
OPERATIONS = ["min", "max", "or", "and", "add", "plain"]
# The program header is not mutated.
BODY_OFFSET = PROGRAM.index("function main")


def mutant(seed: int) -> str:
    """The program with one to three tokens replaced in expressions, or in an argument of an effect or
    closure.
    """
    chance = random.Random(seed)
    head, body = PROGRAM[:BODY_OFFSET], PROGRAM[BODY_OFFSET:]
    for _ in range(chance.randint(1, 3)):
        matches = list(WORD.finditer(body))
        match = chance.choice(matches)
        replacements = OPERATIONS if match[0] in OPERATIONS else WORDS
        body = body[: match.start()] + chance.choice(replacements) + body[match.end() :]
    return head + body


def is_accepted(text: str) -> bool:
    try:
        program = parse_program(text, "x.ir")
    except CompileError:
        return False
    return not any(finding.is_error for finding in verify(program))


def late_waits(text: str) -> list[str]:
    """The effects whose deadline is after the end of an enclosing loop."""
    machine = Machine(emit(parse_program(text, "x.ir")), fuel=10_000)
    now, late = 0, []
    started_ms: int | None = None
    outcome = machine.resume()
    while isinstance(outcome, Effect):
        now += 10
        inside = any(frame.function == "inner" for frame in machine.frames())
        if outcome.kind == "clock":
            started_ms = now if inside and started_ms is None else started_ms
            answer = {"time": "", "elapsed_ms": now}
        else:
            deadline = outcome.args.get("deadline_ms")
            limit_ms = OUTER_MS if not inside or started_ms is None else min(OUTER_MS, started_ms + INNER_MS)
            if not isinstance(deadline, int | float) or deadline > limit_ms:
                late.append(f"{outcome.args} with {limit_ms} at {now}")
            now = min(now + 1000, max(now, limit_ms))
            answer = {"elapsed_ms": now}
        outcome = machine.resume(answer)
    return late


def test_the_program_is_accepted_and_meets_its_deadlines() -> None:
    """The unmutated program."""
    assert is_accepted(PROGRAM)
    assert late_waits(PROGRAM) == []


@pytest.mark.parametrize("first", range(0, tried(500), 250))
def test_an_accepted_mutant_meets_its_deadlines(first: int) -> None:
    """A mutant that the verifier accepts respects the timeouts of both loops."""
    accepted = [text for seed in range(first, first + 250) if is_accepted(text := mutant(seed))]
    assert accepted
    for text in accepted:
        assert late_waits(text) == [], text


def test_many_rejected_mutants_miss_a_deadline() -> None:
    """The rejections are needed: many of these mutants run and wait too long."""
    late = 0
    for seed in range(200):
        text = mutant(seed)
        try:
            late += not is_accepted(text) and bool(late_waits(text))
        except Exception:  # an invalid program may raise any exception
            continue
    assert late > 10
