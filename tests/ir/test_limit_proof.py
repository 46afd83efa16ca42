"""The limit proof: accepted programs are bounded; programs that bypass a limit are rejected."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import tried

from llc.ir.limit_proof import verify_limits
from llc.ir.nodes import (
    Branch,
    Const,
    Expr,
    Function,
    Goto,
    Handler,
    Instruction,
    Perform,
    Prim,
    Program,
    Set,
    Slot,
    State,
    Switch,
)
from llc.ir.text import parse_program, print_program
from llc.ir.verify import verify

# Two states, `check` and `fix`, with jumps to each other and to themselves; errors of `check` go to `fix`.
# All limits are declared; `maintain` is off.
GOOD = """
program lint entry main
meta {"kind": "loop", "maintain": false, "limits":
      {"max_iterations": 3, "max_steps": 9, "timeout_ms": 5000, "budget_usd": 2}}
function main() locals(iteration, lap, steps, seen.check, seen.fix, again, fault, last, verdict, spent.usd)
  state /start
    iteration = 1
    lap = 1
    steps = 0
    spent.usd = 0
    goto check
  state check
    branch ge(steps, 9) /max_steps check/step
  state check/step
    steps = add(steps, 1)
    branch eq(seen.check, lap) check/again check/enter
  state check/again
    branch ge(iteration, 3) /max_iterations check/next
  state check/next
    iteration = add(iteration, 1)
    lap = add(lap, 1)
    goto check/enter
  state check/enter on fault -> check/error(fault)
    seen.check = lap
    note state_enter map("state", "check", "iteration", iteration)
    perform shell map("command", "ruff", "deadline_ms", 5000) -> last then check/route
  state check/route on fault -> check/error(fault)
    verdict = get(last, "verdict")
    switch verdict {"done" -> /done, "again" -> check, else -> fix}
  state check/error
    perform clock {} -> last then fix
  state fix
    branch ge(steps, 9) /max_steps fix/step
  state fix/step
    steps = add(steps, 1)
    again = eq(lap, seen.fix)
    branch again fix/again fix/enter
  state fix/again
    branch ge(iteration, 3) /max_iterations fix/next
  state fix/next
    iteration = add(iteration, 1)
    lap = add(lap, 1)
    goto fix/enter
  state fix/enter
    seen.fix = lap
    branch ge(spent.usd, 2) /budget fix/act
  state fix/act
    perform agent without_nulls(map("command", "/fix", "deadline_ms", 5000)) -> last then fix/route
  state fix/route
    spent.usd = add(spent.usd, get(last, "usd"))
    switch get(last, "verdict") {"done" -> /done, "again" -> fix, else -> check}
  state /done
    return "done"
  state /max_iterations
    return "max_iterations"
  state /max_steps
    return "max_steps"
  state /budget
    return "budget"
"""
MAINTAINED = GOOD.replace('"maintain": false', '"maintain": true').replace(
    '  state /done\n    return "done"\n',
    """  state /done
    perform sleep map("seconds", 1, "deadline_ms", 5000) -> last then /cycle
  state /cycle
    iteration = 1
    lap = add(lap, 1)
    goto check
""",
)


def problems(text: str) -> set[str]:
    return {diagnostic.id for diagnostic in verify(parse_program(text, "x.ir")) if diagnostic.is_error}


def changed(old: str, new: str, text: str = GOOD) -> str:
    assert text.count(old) >= 1
    return text.replace(old, new)


def without(*limits: str, text: str = GOOD) -> str:
    """The loop with fewer limits."""
    program = parse_program(text, "x.ir")
    meta = attrs.evolve(program.meta, limits=attrs.evolve(program.meta.limits, **dict.fromkeys(limits)))
    return print_program(attrs.evolve(program, meta=meta))


@pytest.mark.parametrize("text", [GOOD, MAINTAINED])
def test_valid_loop_is_accepted(text: str) -> None:
    """The shape that frontends write is accepted."""
    assert problems(text) == set()


@pytest.mark.parametrize("limit", ["max_steps", "max_iterations"])
def test_one_bound_on_cycles_is_enough(limit: str) -> None:
    assert problems(without(limit)) == set()


def test_cycle_without_a_bound_is_an_error() -> None:
    """A loop without a bound on iterations or steps must be acyclic."""
    assert problems(without("max_iterations", "max_steps")) == {"unbounded-cycle", "uncounted-way"}


def test_limits_are_proved_for_loops_only() -> None:
    """A flow may have cycles, which only fuel bounds."""
    assert problems(changed('"loop"', '"flow"', changed("goto check/enter", "goto check"))) == set()


@pytest.mark.parametrize(
    ("old", "new", "id"),
    [
        # iterations
        ("check/again check/enter", "check/enter check/enter", "unbounded-cycle"),
        ("check/again check/enter", "check/enter check/again", "unbounded-cycle"),
        ("check/again check/enter", "check/next check/enter", "uncounted-way"),
        ("branch ge(iteration, 3) /max_iterations check/next", "goto check/next", "uncounted-way"),
        ("branch ge(iteration, 3) /max_iterations check/next", "goto check/enter", "unbounded-cycle"),
        ("branch ge(iteration, 3)", "branch ge(iteration, 4)", "uncounted-way"),
        ("branch ge(iteration, 3)", "branch gt(iteration, 3)", "uncounted-way"),
        ("branch ge(iteration, 3)", "branch ge(lap, 3)", "uncounted-way"),
        ("branch ge(iteration, 3)", 'branch ge(iteration, "3")', "uncounted-way"),
        ("/max_iterations check/next", "check/next check/next", "uncounted-way"),
        ("    iteration = add(iteration, 1)\n", "", "counter-set"),
        ("    lap = add(lap, 1)\n    goto check/enter", "    goto check/enter", "counter-set"),
        ("iteration = add(iteration, 1)", "iteration = add(iteration, 0)", "counter-set"),
        ("iteration = add(iteration, 1)", "iteration = add(iteration, true)", "counter-set"),
        ("iteration = add(iteration, 1)", "iteration = sub(iteration, 1)", "counter-set"),
        ("iteration = add(iteration, 1)", "iteration = add(lap, 1)", "counter-set"),
        ("iteration = add(iteration, 1)", "iteration = add(iteration, 1) iteration = 1", "counter-set"),
        ("seen.fix = lap", "seen.fix = lap iteration = 1", "counter-set"),
        ("seen.fix = lap", "seen.fix = lap lap = add(lap, 1)", "counter-set"),
        ("seen.fix = lap", "seen.fix = steps", "unbounded-cycle"),
        ("seen.fix = lap", "seen.fix = lap seen.fix = null", "unbounded-cycle"),
        ("    seen.check = lap\n", "", "unbounded-cycle"),
        ("verdict = get", "seen.check = null verdict = get", "unbounded-cycle"),
        ("-> last then check/route", "-> seen.check then check/route", "unbounded-cycle"),
        ("-> last then check/route", "-> iteration then check/route", "counter-set"),
        ("check/error(fault)", "check/error(lap)", "counter-set"),
        ("check/error(fault)", "check/next(fault)", "uncounted-way"),
        ("again = eq(lap, seen.fix)", "again = eq(lap, seen.check)", "unbounded-cycle"),
        ("branch again", "again = false branch again", "unbounded-cycle"),
        ("again = eq(lap, seen.fix)", "lap = 1 again = eq(lap, seen.fix)", "counter-set"),
        ("    iteration = 1\n", "    iteration = -1000\n", "counter-set"),
        ("    iteration = 1\n", "", "counter-unset"),
        ("    lap = 1\n", "    lap = null\n", "counter-set"),
        ("    lap = 1\n", "", "counter-unset"),
        ("else -> fix}", "else -> /start}", "counter-reset"),
        ("state check/next\n",
         "state check/next on fault -> check(fault)\n    verdict = div(1, 0)\n", "counter-skipped"),
        ("    seen.check = lap\n    note",
         "    verdict = div(1, 0)\n    seen.check = lap\n    note", "unbounded-cycle"),
        ("    seen.check = lap\n    note",
         "    note cycle verdict\n    seen.check = lap\n    note", "unbounded-cycle"),
        ("state /start\n", "state /start on fault -> check(fault)\n    last = div(1, 0)\n", "counter-unset"),
        ("    seen.check = lap\n    note",
         "    steps = add(steps, 1)\n    seen.check = lap\n    note", "unbounded-cycle"),
        # steps
        ("state check/step\n",
         "state check/step on fault -> check(fault)\n    lap = add(lap, 1)\n", "counter-skipped"),
        ("branch ge(steps, 9) /max_steps check/step", "goto check/step", "uncounted-way"),
        ("branch ge(steps, 9)", "branch ge(steps, 10)", "uncounted-way"),
        ('"again" -> check,', '"again" -> check/again,', "unbounded-cycle"),
        ("steps = add(steps, 1)", "steps = steps", "counter-set"),
        ("seen.fix = lap", "seen.fix = lap steps = 0", "counter-set"),
        ("    steps = 0\n", "    steps = -1\n", "counter-set"),
        ("    steps = 0\n", "", "counter-unset"),
        # time
        (', "deadline_ms", 5000)', ")", "unbounded-wait"),
        (', "deadline_ms", 5000)', ', "deadline_ms", 5001)', "unbounded-wait"),
        (', "deadline_ms", 5000)', ', "deadline_ms", steps)', "unbounded-wait"),
        (', "deadline_ms", 5000)', ', "deadline_ms", 5000, "deadline_ms", 1e9)', "unbounded-wait"),
        (', "deadline_ms", 5000)', ', "deadline_ms", 5000, verdict, 1e9)', "unbounded-wait"),
        ('map("command", "/fix", "deadline_ms", 5000)',
         'put(map("deadline_ms", 5000), "a", 1)', "unbounded-wait"),
        ("perform clock {} -> last then fix", "goto check", "unbounded-time"),
        # budget
        ("branch ge(spent.usd, 2) /budget fix/act", "goto fix/act", "unbounded-budget"),
        ("branch ge(spent.usd, 2)", "branch ge(spent.usd, 3)", "unbounded-budget"),
        ("/budget fix/act", "fix/act fix/act", "unbounded-budget"),
        ('    spent.usd = add(spent.usd, get(last, "usd"))\n', "", "unbounded-budget"),
        ('add(spent.usd, get(last, "usd"))', "0", "counter-set"),
        ('add(spent.usd, get(last, "usd"))', "add(spent.usd, -1)", "counter-set"),
        ('add(spent.usd, get(last, "usd"))', 'sub(spent.usd, get(last, "usd"))', "counter-set"),
        ("    spent.usd = 0\n", "    spent.usd = -100\n", "counter-set"),
        ("state fix/route\n",
         "state fix/route on fault -> fix(fault)\n last = div(1, 0)\n", "unbounded-budget"),
    ],
)  # fmt: skip
def test_bypassed_limit_is_an_error(old: str, new: str, id: str) -> None:
    """Each change lets a run exceed a limit."""
    assert id in problems(changed(old, new))


def test_caught_fault_of_usage_is_an_error() -> None:
    """Non-numeric usage faults when it is added; the program must not continue after the fault."""
    text = changed("state fix/route\n", "state fix/route on fault -> fix(fault)\n")
    assert problems(text) == set()


@pytest.mark.parametrize(
    ("old", "new", "id"),
    [
        ('"maintain": true', '"maintain": false', "counter-set"),
        ("    iteration = 1\n    lap = add", "    iteration = 0\n    lap = add", "counter-set"),
        ("    iteration = 1\n    lap = add(lap, 1)\n", "    iteration = 1\n", "counter-set"),
        ("lap = add(lap, 1)\n    goto check\n",
         "lap = add(lap, 1) steps = 0\n    goto check\n", "counter-set"),
        ("lap = add(lap, 1)\n    goto check\n",
         "lap = add(lap, 1) spent.usd = 0\n    goto check\n", "counter-set"),
        ("lap = add(lap, 1)\n    goto check\n", "lap = add(lap, 1)\n    goto /start\n", "counter-reset"),
        ('"deadline_ms", 5000) -> last then /cycle',
         '"deadline_ms", 1) -> last then /cycle', "unbounded-wait"),
    ],
)  # fmt: skip
def test_restart_of_maintained_loop_resets_only_iterations(old: str, new: str, id: str) -> None:
    """A new cycle gives new iterations, but no new steps, money or time."""
    assert id in problems(changed(old, new, MAINTAINED))


def test_diagnostic_lists_the_states_of_the_cycle() -> None:
    text = changed("check/again check/enter", "check/enter check/enter", without("max_steps"))
    program = parse_program(text, "x.ir")
    messages = [d.message for d in verify_limits(program) if d.id == "unbounded-cycle"]
    assert messages == [
        "nothing bounds the iterations of this cycle: `check` → `check/step` → `check/enter` → `check/route`"
        " → `check`"
    ]


# --- other functions --------------------------------------------------------------------------

CALLING = changed('return "max_iterations"', "call closure g()(1) -> last then /max_steps")
HELPER = "function g(x) locals(y)\n  state s\n    return x\n"


@pytest.mark.parametrize(
    "helper",
    [
        HELPER,
        "function g(x) state s goto s",
        "function g(x) state s tailcall closure g()(1)",
        "function g(x) state s tailcall x()",
        "function g(x) state s perform clock {} -> x then t state t return 1",
    ],
)
def test_called_function_may_compute(helper: str) -> None:
    """A call that neither waits nor spends is accepted."""
    assert problems(CALLING + helper) == set()


@pytest.mark.parametrize(
    ("helper", "id"),
    [
        ("function g(x) state s tailcall closure main()()", "unbounded-recursion"),
        ("function g(x) state s return closure h() function h() state s tailcall closure main()()",
         "unbounded-recursion"),
        ("function g(x) state s perform sleep {} -> x then t state t return 1", "unbounded-wait"),
        ('function g(x) state s perform sleep {"deadline_ms": 5000} -> x then t state t return 1',
         "unbounded-wait"),
        ("function g(x) state s return closure h() function h() locals(x) "
         "state s perform sleep {} -> x then t state t return 1", "unbounded-wait"),
        (
            'function g(x) state s perform agent {"deadline_ms": 5000} -> x then t state t return 1',
            "unbounded-budget",
        ),
        ('function g(x) state s perform task {} -> x then t state t return 1', "unbounded-budget"),
    ],
)  # fmt: skip
def test_called_function_cannot_bypass_limits(helper: str, id: str) -> None:
    """A called function must not call the loop, wait without a bound, or spend."""
    assert id in problems(CALLING + helper)


def test_callee_of_a_loop_is_a_closure() -> None:
    """A callee that is computed is an error."""
    text = changed('return "max_iterations"', "call last(1) -> last then /max_steps")
    assert "unbounded-call" in problems(text + HELPER)


def test_parallel_calls_follow_the_rules_of_calls() -> None:
    """The callee is known, is not recursive, and waits under the deadline; the slot counts as written."""
    text = changed('return "max_iterations"', "parallel closure g() over [1] -> last then /max_steps")
    assert problems(text + HELPER) == set()
    assert "unbounded-recursion" in problems(text + "function g(x) state s tailcall closure main()()")
    asks = "function g(x) state s perform sleep {} -> x then t state t return 1"
    assert "unbounded-wait" in problems(text + asks)
    unknown = changed('return "max_iterations"', "parallel last over [1] -> last then /max_steps")
    assert "unbounded-call" in problems(unknown + HELPER)
    again = HELPER.replace("return x", "parallel closure main() over [1] -> y then s")
    assert "unbounded-recursion" in problems(text + again)
    counter = changed('return "max_iterations"', "parallel closure g() over [1] -> iteration then /max_steps")
    assert "counter-set" in problems(counter + HELPER)


# A loop that passes its deadline on, through a function that calls another.
FORWARDED = (
    changed('return "max_iterations"', "call closure g(5000)(1) -> last then /max_steps")
    + """
function g(x) captures(/deadline)
  state s
    tailcall closure h(/deadline)(x)
function h(x) captures(/deadline) locals(y)
  state s
    perform sleep map("seconds", x, "deadline_ms", /deadline) -> y then t
  state t
    return y
"""
)


def test_deadline_may_be_passed_on() -> None:
    """An effect is bounded by a deadline that was passed through every call."""
    assert problems(FORWARDED) == set()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("closure g(5000)", "closure g(6000)"),
        ("closure g(5000)", "closure g(null)"),
        ("closure h(/deadline)", "closure h(x)"),
        ("closure h(/deadline)", "closure h(max(/deadline, x))"),
        ('"deadline_ms", /deadline', '"deadline_ms", x'),
        ('"deadline_ms", /deadline', '"deadline_ms", /deadline, "deadline_ms", null'),
        ("    perform sleep", "    /deadline = x\n    perform sleep"),
        ("    tailcall", "    /deadline = x\n    tailcall"),
    ],
)
def test_dropped_deadline_is_an_error(old: str, new: str) -> None:
    """Each call of the chain must pass the deadline on."""
    assert FORWARDED.count(old) == 1
    assert problems(FORWARDED.replace(old, new)) & {"unbounded-wait", "counter-set"}


def test_earlier_deadline_may_be_passed_on() -> None:
    """The minimum of the deadline and another value is a valid deadline."""
    assert problems(FORWARDED.replace("closure h(/deadline)", "closure h(min(x, /deadline))")) == set()


# A flow with a loop with a timeout inside another loop with a timeout.
NESTED = """
program lint entry main
meta {"kind": "loop", "limits": {"max_iterations": 3, "timeout_ms": 5000},
      "loops": [{"function": "inner", "name": "inner", "limits": {"max_steps": 3, "timeout_ms": 100}}]}
function main() locals(iteration, lap, x)
  state /start
    iteration = 1
    lap = 1
    call closure g(5000)() -> x then end
  state end
    return x
function g() captures(/deadline)
  state s
    tailcall closure inner(/deadline)(plain(/deadline), 1)
function inner(x, y) captures(/outer) locals(steps, now, /deadline)
  state /start
    steps = 0
    perform clock {} -> now then /started
  state /started
    /deadline = min(or(/outer, add(get(now, "elapsed_ms"), 100)), add(get(now, "elapsed_ms"), 100))
    goto a
  state a
    branch ge(steps, 3) end b
  state b
    steps = add(steps, 1)
    perform sleep map("seconds", 1, "deadline_ms", /deadline) -> now then a
  state end
    return 1
"""


def test_nested_loop_is_accepted() -> None:
    """Both respect their limits, the inner one also those of the outer one."""
    assert problems(NESTED) == set()


@pytest.mark.parametrize(
    ("old", "new", "id"),
    [
        ("min(or(/outer, add(get(now, \"elapsed_ms\"), 100)), ", "max(1, ", "counter-unset"),
        ("or(/outer, ", "or(x, ", "counter-unset"),
        ("    goto a", "    /deadline = 9999\n    goto a", "counter-unset"),
        ("    steps = 0\n", "    steps = 0\n    /outer = 9999\n", "counter-set"),
        ('perform sleep map("seconds", 1, "deadline_ms", /deadline)', "perform sleep {}", "unbounded-wait"),
        ("branch ge(steps, 3) end b", "branch ge(steps, 4) end b", "unbounded-cycle"),
        ("-> now then a\n", "-> now then /start\n", "counter-reset"),
        ("closure inner(/deadline)", "closure inner(null)", "unbounded-wait"),
        ("(plain(/deadline), 1)", "(/deadline, 1)", "unbounded-call"),
        ("tailcall closure inner(/deadline)(plain(/deadline), 1)", "return closure inner(/deadline)",
         "unbounded-call"),
        ("    return 1", "    tailcall closure g(/deadline)()", "unbounded-recursion"),
    ],
)  # fmt: skip
def test_bypassed_limit_of_inner_loop_is_an_error(old: str, new: str, id: str) -> None:
    """An inner loop must respect its own limits and the enclosing ones."""
    assert NESTED.count(old) == 1
    assert id in problems(NESTED.replace(old, new))


# --- every accepted mutant is bounded ---------------------------------------------------------


class Fault(Exception):
    pass


def evaluate(expr: Expr, slots: dict[str, Any]) -> Any:
    """Evaluate the primitives of the loop above; anything unexpected faults."""
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Slot):
        return slots.get(expr.name)
    assert isinstance(expr, Prim)
    args = [evaluate(arg, slots) for arg in expr.args]
    numbers = all(type(arg) in (int, float) for arg in args)
    match expr.op:
        case "eq":
            return args[0] == args[1]
        case "ge" if numbers:
            return args[0] >= args[1]
        case "add" if numbers:
            return sum(args)
        case "get" if isinstance(args[0], dict):
            return args[0].get(args[1])
        case "map":
            return dict(zip(args[::2], args[1::2], strict=True))
        case "without_nulls":
            return args[0]
    raise Fault


def run(program: Program, world: random.Random, max_states: int) -> tuple[int, float]:
    """Run with random answers; returns the number of entered states (up to `max_states`) and the money
    spent.
    """
    function = program.functions[0]
    states = {state.name: state for state in function.states}
    slots: dict[str, Any] = {}
    name = function.states[0].name
    spent = 0.0
    for entered in range(max_states):
        state = states[name]
        try:
            for instruction in state.body:
                if isinstance(instruction, Set):
                    slots[instruction.slot] = evaluate(instruction.value, slots)
            exit_ = state.exit
            match exit_:
                case Goto(target):
                    name = target
                case Branch(condition, then, otherwise):
                    name = then if evaluate(condition, slots) else otherwise
                case Switch(subject, cases, default):
                    verdict = evaluate(subject, slots)
                    name = dict(cases).get(verdict, default) if isinstance(verdict, str) else default
                case Perform(kind, args, slot, after):
                    evaluate(args, slots)
                    slots[slot] = {"verdict": world.choice(["done", *["again", "other"] * 5]), "usd": 0.25}
                    spent += 0.25 if kind == "agent" else 0
                    name = after
                case _:
                    return entered, spent
        except Fault:
            if state.handler is None:
                return entered, spent
            slots[state.handler.slot] = {}
            name = state.handler.target
    return max_states, spent


def mutants(program: Program, chance: random.Random) -> Iterator[Program]:
    """Endless series of programs with one to three small changes."""
    while True:
        changing = program
        for _ in range(chance.choice([1, 1, 2, 3])):
            function = changing.functions[0]
            states = list(function.states)
            at = chance.randrange(len(states))
            states[at] = mutate(states[at], function, chance)
            changing = attrs.evolve(changing, functions=(attrs.evolve(function, states=tuple(states)),))
        yield changing


def mutate(state: State, function: Function, chance: random.Random) -> State:
    """Change a target, slot, number, order, handler or instruction of a state."""
    names = [state.name for state in function.states]
    target = chance.choice(names)
    body = list(state.body)
    kind = chance.choice(["target", "target", "target", "body", "body", "handler", "swap", "exit"])
    if kind == "handler":
        handler = Handler(target, chance.choice(function.slots)) if chance.random() < 0.7 else None
        return attrs.evolve(state, handler=handler)
    if kind == "body":
        instruction: Instruction = Set(chance.choice(function.slots), expression(function, chance))
        index = chance.randrange(len(body) + 1)
        if body and chance.random() < 0.5:
            del body[index - 1]
        if chance.random() < 0.7:
            body.insert(min(index, len(body)), instruction)
        return attrs.evolve(state, body=tuple(body))
    exit_ = state.exit
    if isinstance(exit_, Goto):
        exit_ = Goto(target)
    elif isinstance(exit_, Branch):
        if kind == "swap":
            exit_ = attrs.evolve(exit_, then=exit_.otherwise, otherwise=exit_.then)
        elif kind == "exit":
            exit_ = attrs.evolve(exit_, condition=expression(function, chance))
        else:
            exit_ = attrs.evolve(exit_, **{chance.choice(["then", "otherwise"]): target})
    elif isinstance(exit_, Switch):
        cases = [(case, target if chance.random() < 0.5 else old) for case, old in exit_.cases]
        exit_ = Switch(exit_.subject, tuple(cases), chance.choice([exit_.default, target]))
    elif isinstance(exit_, Perform):
        exit_ = attrs.evolve(
            exit_, **chance.choice([{"next": target}, {"slot": chance.choice(function.slots)}])
        )
    return attrs.evolve(state, exit=exit_)


def expression(function: Function, chance: random.Random) -> Expr:
    def operand() -> Expr:
        return chance.choice([Slot(chance.choice(function.slots)), Const(chance.choice([0, 1, 3, 9, None]))])

    op = chance.choice(["", "", "eq", "ge", "add", "add"])
    return Prim(op, (operand(), operand())) if op else operand()


def accepted_mutants(program: Program, chance: random.Random, tried: int) -> Iterator[Program]:
    for mutant in itertools.islice(mutants(program, chance), tried):
        if not any(diagnostic.is_error for diagnostic in verify(mutant)):
            yield mutant


@pytest.mark.parametrize("limits", [(), ("max_steps",), ("max_iterations",)])
@settings(max_examples=tried(6), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_an_accepted_mutant_ends(limits: tuple[str, ...], seed: int) -> None:
    """A random change of a valid loop is rejected, or the loop ends for any answers of the world."""
    chance = random.Random(seed)
    program = parse_program(without("timeout_ms", "budget_usd", *limits), "x.ir")
    # In a lap, each of the two states has one first visit, and no state is entered twice between two such
    # visits.
    bound = len(program.functions[0].states) * (9 if "max_iterations" in limits else 3 * 3)
    for mutant in accepted_mutants(program, chance, 200):
        entered = max(run(mutant, chance, bound + 1)[0] for _ in range(3))
        assert entered <= bound, print_program(mutant)


@settings(max_examples=tried(12), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_an_accepted_mutant_keeps_its_budget(seed: int) -> None:
    """No accepted change allows the call of an agent after the budget is reached.

    Mutants that change the sum are excluded: its completeness cannot be proved.
    """
    chance = random.Random(seed)
    program = parse_program(
        without("timeout_ms", "max_steps").replace('s": 3,', 's": 30,').replace(", 3)", ", 30)"), "x.ir"
    )
    for mutant in accepted_mutants(program, chance, 100):
        if sums(mutant) <= sums(program):
            assert run(mutant, chance, 2000)[1] <= 2, print_program(mutant)


def sums(program: Program) -> set[Instruction]:
    return {
        instruction
        for state in program.functions[0].states
        for instruction in state.body
        if isinstance(instruction, Set) and instruction.slot == "spent.usd"
    }
