"""Writing the states of a function: names, labels, temporaries, one open state at a time.

Owns the names of states and their beginnings: a state that nothing jumps to is not written, and one with
a single plain jump to it is merged into the state of the jump. Must not contain: the language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...ir.analysis import may_fault
from ...ir.builder import FunctionBuilder, store
from ...ir.nodes import Branch, Const, Exit, Expr, Function, Goto, Handler, Instruction, Slot
from ...ir.spans import Span


class Names:
    """Names given once each: the second `x` is `x.2`."""

    def __init__(self) -> None:
        self._count: dict[str, int] = {}

    def give(self, name: str) -> str:
        count = self._count.get(name, 0) + 1
        self._count[name] = count
        if count == 1:
            return name
        return self.give(f"{name}.{count}")

    def copy(self) -> Names:
        copied = Names()
        copied._count = dict(self._count)
        return copied


class Label:
    """A state that will be: jumps go to it before it is written. `uses` counts them."""

    def __init__(self, kind: str, span: Span | None) -> None:
        self.kind = kind
        self.span = span
        self.uses = 0
        self.name = ""

    def use(self) -> Label:
        self.uses += 1
        return self


class _State:
    """A state being written: its instructions, and in the end its exit, made once names are known."""

    def __init__(self, label: Label, handler: tuple[Label, str] | None) -> None:
        self.label = label
        self.handler = handler
        self.body: list[Instruction] = []
        self.exit: Callable[[], Exit] | None = None
        # Where a plain jump leads: what follows may go on in this state if nothing else leads there.
        self.goes_to: Label | None = None


class StateWriter:
    """The states of one function, in the order they are begun.

    While nothing is open, whatever is added cannot be reached and is left out. `handler` is for the
    states begun from now on: its label and the slot for the fault.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.states: list[_State] = []
        self.open: _State | None = None
        self.handler: tuple[Label, str] | None = None
        self.slot_names = Names()
        self.temporaries: list[str] = []
        self.depth = 0  # how many of them are in use

    def begin(self, label: Label) -> None:
        """Go on in the state of a label; where nothing leads to it, what follows is not written."""
        assert self.open is None
        if not label.uses:
            return
        last = self.states[-1] if self.states else None
        if last is not None and last.goes_to is label and label.uses == 1 and last.handler == self.handler:
            last.exit = last.goes_to = None
            self.open = last
            return
        self.open = _State(label, self.handler)
        self.states.append(self.open)

    def add(self, instruction: Instruction) -> None:
        if self.open is not None:
            self.open.body.append(instruction)

    def leave(self, exit: Callable[[], Exit], kind: str | None = None) -> None:
        """End the open state; `kind` is a better name for it than why it was begun."""
        if self.open is not None:
            self.open.exit = exit
            if kind is not None and self.open.label.kind not in ("loop", "catch"):
                self.open.label.kind = kind
            self.open = None

    def jump(self, label: Label) -> None:
        if self.open is not None:
            label.use()
            self.open.goes_to = label
            self.leave(lambda: Goto(label.name))

    def leave_by_branch(self, condition: Expr, then: Label, otherwise: Label, span: Span | None) -> None:
        if self.open is None:
            return
        if isinstance(condition, Const):
            self.jump(then if is_true(condition.value) else otherwise)
            return
        then.use()
        otherwise.use()
        if self.open.label.kind == "after":
            self.open.label.kind = "if"
            self.open.label.span = span or self.open.label.span
        self.leave(lambda: Branch(condition, then.name, otherwise.name, span=span))

    def build(
        self, parameters: Iterable[str], captures: Iterable[str], rest: bool, span: Span | None
    ) -> Function:
        """The function, once every state has its exit."""
        names = Names()
        passed = self._passed()
        for state in self.states:
            if state in passed:
                continue
            label = state.label
            line = f"-{label.span.line}" if label.span is not None and label.kind != "start" else ""
            label.name = names.give(f"{label.kind}{line}")
        for state, target in passed.items():
            state.label.name = target.name
        builder = FunctionBuilder(self.name, parameters, captures)
        for state in self.states:
            if state in passed:
                continue
            assert state.exit is not None
            handler = None
            if state.handler is not None:
                label, slot = state.handler
                handler = Handler(label.name, slot)
            label = state.label
            builder.state(label.name, state.body, state.exit(), handler=handler, span=label.span)
        return builder.build(span, rest)

    def _passed(self) -> dict[_State, Label]:
        """The states that do nothing but jump on, each with where that leads in the end."""
        onward = {
            state.label: state.goes_to
            for state in self.states[1:]
            if state.goes_to is not None and not state.body
        }
        ends: dict[Label, Label] = {}
        for label in onward:
            path: dict[Label, None] = {}
            target = label
            while target in onward and target not in path and target not in ends:
                path[target] = None
                target = onward[target]
            if target not in path:  # else they jump in a circle, and stay
                ends |= dict.fromkeys(path, ends.get(target, target))
        return {state: ends[state.label] for state in self.states if state.label in ends}

    def temporary(self) -> str:
        if self.depth == len(self.temporaries):
            self.temporaries.append(self.slot_names.give(f"t{self.depth + 1}"))
        self.depth += 1
        return self.temporaries[self.depth - 1]

    def keep(self, expr: Expr) -> Slot:
        """A value put aside in a temporary."""
        slot = self.temporary()
        self.add(store(slot, expr))
        return Slot(slot)

    def drop(self, expr: Expr) -> None:
        """Evaluate an expression for the fault it may be."""
        if may_fault(expr):
            mark = self.depth
            self.keep(expr)
            self.depth = mark


def is_true(value: Any) -> bool:
    """Truth as the machine has it (`spec/ir.md`, Truth), for a constant."""
    return bool(value)
