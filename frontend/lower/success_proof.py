"""Proof of success: each success of a loop follows a check that ran after the last work of an agent.

A forward data-flow analysis over the states of a loop (`spec/ir.md`, Proof of success). A check is a command
or tool whose result decides, through a deterministic evaluator, where control goes; it has passed on the
edges of a good verdict. An agent, a task, a model's verdict, and a verdict on an older output prove nothing.
Must not contain: the meaning of commands (`Tells` is a parameter), YAML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ...ir import nodes
from ...ir.analysis import exit_targets, functions_named, slots_read
from ...ir.call_limits import References
from ...ir.records import frozen

# How much the result of a command says: nothing, its output, or its output and exit code.
NOTHING, OUTPUT, ALL = range(3)
Tells = Callable[[str], int]
# Verdicts of a passed check.
GOOD = frozenset({"success", "target", "yes"})
# Effects whose work is unproven, and effects whose result a deterministic evaluator can judge.
_CLAIMS = frozenset({"agent", "task"})
_CHECKS = frozenset({"shell", "tool"})
# Evaluators with the verdicts `success`, `failure` and `error` only.
_TWO_VERDICTS = frozenset({"judge_exit", "judge_numeric", "judge_contains", "judge_json"})


@frozen
class Unproven:
    """A success without a check: the state that ends the loop, and an agent's state that can precede it."""

    function: str
    end: nodes.State
    work: nodes.State


@frozen
class _Facts:
    """Data-flow facts that hold on every path to a state.

    work: a state of an agent's work on some path, or None. is_checked: a check has passed since.
    fresh: the slots with the result of a command that ran after all other work, or with values computed from
    it. has_exit_code: whether the exit code in them can show a failure.
    """

    work: str | None = None
    is_checked: bool = True
    fresh: frozenset[str] = frozenset()
    has_exit_code: bool = True

    def join(self, other: _Facts) -> _Facts:
        mine, theirs = self._unproven(), other._unproven()
        work = mine or theirs or self.work or other.work
        has_exit_code = self.has_exit_code and other.has_exit_code
        return _Facts(work, not (mine or theirs), self.fresh & other.fresh, has_exit_code)

    def _unproven(self) -> str | None:
        return None if self.is_checked else self.work

    def after_claim(self, state: str) -> _Facts:
        return _Facts(state, False)

    def after_work(self, fresh: frozenset[str] = frozenset(), has_exit_code: bool = True) -> _Facts:
        return _Facts(self.work, self.work is None, fresh, has_exit_code)

    def with_fresh(self, fresh: frozenset[str]) -> _Facts:
        return _Facts(self.work, self.is_checked, fresh, self.has_exit_code)


def unproven_successes(program: nodes.Program, tells: Tells) -> list[Unproven]:
    """The successes of the program's loops that follow an agent's work without a check.

    tells: how much the result of a command says; the exit code of `pytest || true` says nothing.
    """
    names = [loop.function for loop in program.meta.loops]
    if program.meta.kind == "loop":
        names.append(program.entry)
    if not names:
        return []
    effects = _effects(program)
    if not any(effects[name] & _CLAIMS for name in names):
        return []
    found: dict[str, list[Unproven]] = {}
    for name in names:
        found[name] = list(_Loop(program.function(name), effects, tells).unproven())
    return [one for name in names for one in found[name]]


def _effects(program: nodes.Program) -> dict[str, frozenset[str]]:
    """The kinds of effects that each function performs, directly or in functions that it may call."""
    references = References(program.functions)
    own = {function.name: {*references.performed(function.name)} for function in program.functions}
    return {
        name: frozenset(kinds.union(*(own[other] for other in references.reach([name]))))
        for name, kinds in own.items()
    }


class _Loop:
    """The analysis of one function."""

    def __init__(self, function: nodes.Function, effects: Mapping[str, frozenset[str]], tells: Tells) -> None:
        self.function = function
        self.effects = effects
        self.tells = tells
        self.states = {state.name: state for state in function.states}

    def unproven(self) -> Iterator[Unproven]:
        facts = self._solve()
        for state in self.function.states:
            known = facts.get(state.name)
            if known is not None and known.work is not None and not known.is_checked and _succeeds(state):
                yield Unproven(self.function.name, state, self.states[known.work])

    def _solve(self) -> dict[str, _Facts]:
        """The facts before each reachable state."""
        first = self.function.states[0].name
        facts = {first: _Facts()}
        todo = [first]
        while todo:
            state = self.states[todo.pop()]
            for target, after in self._flow(state, facts[state.name]):
                before = facts.get(target)
                joined = after if before is None else before.join(after)
                if joined != before:
                    facts[target] = joined
                    todo.append(target)
        return facts

    def _flow(self, state: nodes.State, facts: _Facts) -> Iterator[tuple[str, _Facts]]:
        """The successors of a state, each with the facts on that edge."""
        if state.handler is not None:
            yield state.handler.target, facts.with_fresh(frozenset())  # a fault skips the stores
        fresh = set(facts.fresh)
        if fresh:
            for part in state.body:
                if isinstance(part, nodes.Set):
                    (fresh.add if self._is_fresh(part.value, fresh, facts) else fresh.discard)(part.slot)
            facts = facts.with_fresh(frozenset(fresh))
        exit = state.exit
        if isinstance(exit, nodes.Switch) and self._is_fresh(exit.subject, fresh, facts):
            for verdict, target in exit.cases:
                yield target, _Facts(facts.work) if verdict in GOOD else facts.after_work()
            if exit.default is not None:
                yield exit.default, _Facts(facts.work) if _only_fails(state, exit) else facts.after_work()
            return
        after = self._after(state, facts)
        for target in exit_targets(exit):
            yield target, after

    def _is_fresh(self, value: nodes.Expr, fresh: set[str], facts: _Facts) -> bool:
        is_blind = isinstance(value, nodes.Prim) and value.op == "judge_exit" and not facts.has_exit_code
        return not is_blind and not fresh.isdisjoint(slots_read(value))

    def _after(self, state: nodes.State, facts: _Facts) -> _Facts:
        """The facts after the effect or the call at the end of a state."""
        exit = state.exit
        if isinstance(exit, nodes.Perform):
            if exit.kind in _CLAIMS:
                return facts.after_claim(state.name)
            if exit.kind in _CHECKS:
                information = self._information(exit)
                return facts.after_work(frozenset({exit.slot} if information else ()), information == ALL)
            is_fresh = exit.kind == "jq" and not facts.fresh.isdisjoint(slots_read(exit.args))
            return facts.with_fresh(facts.fresh | {exit.slot} if is_fresh else facts.fresh - {exit.slot})
        if isinstance(exit, nodes.Call | nodes.TailCall | nodes.Parallel):
            kinds = self._kinds_of(exit.callee)
            if kinds & _CLAIMS:
                return facts.after_claim(state.name)
            is_check = bool(kinds & _CHECKS) and "evaluate" not in kinds
            slot = frozenset({exit.slot}) if not isinstance(exit, nodes.TailCall) else frozenset[str]()
            if kinds & _CHECKS:
                return facts.after_work(slot if is_check else frozenset())
            return facts.with_fresh(facts.fresh - slot)
        return facts

    def _information(self, exit: nodes.Perform) -> int:
        """How much the result of a command or tool says."""
        command = _field(exit.args, "command")
        is_text = isinstance(command, nodes.Const) and isinstance(command.value, str)
        return self.tells(command.value) if is_text else ALL  # type: ignore[union-attr]

    def _kinds_of(self, callee: nodes.Expr) -> frozenset[str]:
        """The kinds of effects that a call may perform."""
        names = functions_named(callee)
        if not names:  # an unknown value may be any function
            names = [name for name in self.effects if name != self.function.name]
        return frozenset().union(*(self.effects[name] for name in names))


def _only_fails(state: nodes.State, exit: nodes.Switch) -> bool:
    """Whether all bad verdicts have their own case, so that the default is a good verdict."""
    judges = {
        part.value.op
        for part in state.body
        if isinstance(part, nodes.Set) and isinstance(part.value, nodes.Prim)
    }
    return {"failure", "error"} <= {verdict for verdict, _ in exit.cases} and bool(judges & _TWO_VERDICTS)


def _succeeds(state: nodes.State) -> bool:
    """Whether the loop ends in this state with success."""
    return any(
        isinstance(part, nodes.Note)
        and part.kind == "loop_complete"
        and isinstance(status := _field(part.fields, "status"), nodes.Const)
        and status.value == "success"
        for part in state.body
    )


def _field(fields: nodes.Expr, name: str) -> nodes.Expr | None:
    """The value of a field of a map expression with literal keys."""
    if isinstance(fields, nodes.Const) and isinstance(fields.value, dict) and name in fields.value:
        return nodes.Const(fields.value[name])
    if isinstance(fields, nodes.Prim) and fields.op == "map":
        for key, value in zip(fields.args[::2], fields.args[1::2], strict=True):
            if isinstance(key, nodes.Const) and key.value == name:
                return value
    return None
