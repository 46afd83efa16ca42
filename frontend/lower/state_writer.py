"""Writer of the states of a function: names, labels, temporaries, one open state at a time.

Owns the names of states. A state without jumps to it is dropped; a state with
a single plain jump to it is merged into the jumping state. Must not contain: the core language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...ir.analysis import may_fault
from ...ir.builder import FunctionBuilder, store
from ...ir.nodes import Branch, Const, Exit, Expr, Function, Goto, Handler, Instruction, Slot
from ...ir.spans import Span


class Names:
    """Allocator of unique names: the second `x` becomes `x.2`."""

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
    """A jump target, which may be used before its state is written. `uses` counts the jumps."""

    def __init__(self, kind: str, span: Span | None) -> None:
        self.kind = kind
        self.span = span
        self.uses = 0
        self.name = ""

    def use(self) -> Label:
        self.uses += 1
        return self


class _State:
    """A state under construction; its exit is created when all names are known."""

    def __init__(self, label: Label, handler: tuple[Label, str] | None) -> None:
        self.label = label
        self.handler = handler
        self.body: list[Instruction] = []
        self.exit: Callable[[], Exit] | None = None
        # Target of a plain jump; its state can be merged into this one if no other jump leads there.
        self.goes_to: Label | None = None


class StateWriter:
    """The states of one function, in order of their beginning.

    While no state is open, added instructions are unreachable and are discarded. `handler` applies to the
    states that begin from now on: the label of the handler and the slot of the fault.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.states: list[_State] = []
        self.open: _State | None = None
        self.handler: tuple[Label, str] | None = None
        self.slot_names = Names()
        self.temporaries: list[str] = []
        self.depth = 0  # temporaries in use

    def begin(self, label: Label) -> None:
        """Open the state of a label; if no jump leads to it, the following code is discarded."""
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
        """End the open state. kind: a better name for the state than that of its label."""
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
        """The function; every state must have its exit."""
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
        """Empty states that only jump, each with its final target."""
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
            if target not in path:  # a cycle of empty states stays
                ends |= dict.fromkeys(path, ends.get(target, target))
        return {state: ends[state.label] for state in self.states if state.label in ends}

    def temporary(self) -> str:
        if self.depth == len(self.temporaries):
            self.temporaries.append(self.slot_names.give(f"t{self.depth + 1}"))
        self.depth += 1
        return self.temporaries[self.depth - 1]

    def keep(self, expr: Expr) -> Slot:
        """Store a value in a temporary."""
        slot = self.temporary()
        self.add(store(slot, expr))
        return Slot(slot)

    def drop(self, expr: Expr) -> None:
        """Evaluate an expression only for a possible fault."""
        if may_fault(expr):
            mark = self.depth
            self.keep(expr)
            self.depth = mark


def is_true(value: Any) -> bool:
    """Truth of a constant (`spec/ir.md`, Truth)."""
    return bool(value)
