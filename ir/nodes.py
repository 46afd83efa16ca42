"""The program model: functions, states, straight-line instructions, exits.

A program is a set of functions; a function is an ordered set of named states over named slots; a state is
straight-line work on slots followed by exactly one exit. Whatever can suspend, loop or leave ends a state, so
between two states nothing lives but slots. That is the invariant snapshots rest on (`spec/ir.md`).

Must not contain: anything that knows YAML, S-expressions, opcodes or the world.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from .records import frozen
from .spans import Source, Span


def typed_key(value: Any) -> Any:
    """An equality key that keeps `1`, `1.0` and `True` apart and can be hashed."""
    if isinstance(value, dict):
        return ("map", tuple((name, typed_key(item)) for name, item in value.items()))
    if isinstance(value, tuple):
        return ("list", tuple(typed_key(item) for item in value))
    if isinstance(value, float):
        return ("float", repr(value))
    return (type(value).__name__, value)


def _span() -> Any:
    return attrs.field(default=None, kw_only=True, eq=False, repr=False)


# --- expressions: pure, may fault -------------------------------------------------------------


@frozen
class Const:
    """A literal value."""

    value: Any = attrs.field(eq=typed_key)
    span: Span | None = _span()


@frozen
class Slot:
    """The value a slot holds now; a slot never stored to holds null."""

    name: str
    span: Span | None = _span()


@frozen
class Prim:
    """A primitive of `primitives.PRIMITIVES` applied to arguments, left to right."""

    op: str
    args: tuple[Expr, ...]
    span: Span | None = _span()


@frozen
class Closure:
    """A function value: `function` with `captures` copied into its capture slots when called."""

    function: str
    captures: tuple[Expr, ...] = ()
    span: Span | None = _span()


Expr = Const | Slot | Prim | Closure


# --- instructions -----------------------------------------------------------------------------


@frozen
class Set:
    """Store the value of `value` in `slot`."""

    slot: str
    value: Expr
    span: Span | None = _span()


@frozen
class SetBox:
    """Replace the content of the box that `box` evaluates to."""

    box: Expr
    value: Expr
    span: Span | None = _span()


@frozen
class Note:
    """Tell the host something happened, without waiting; `fields` evaluates to a map."""

    kind: str
    fields: Expr
    span: Span | None = _span()


Instruction = Set | SetBox | Note


# --- exits ------------------------------------------------------------------------------------


@frozen
class Goto:
    target: str
    span: Span | None = _span()


@frozen
class Branch:
    """To `then` if `condition` is truthy (`spec/ir.md`, Truth), else to `otherwise`."""

    condition: Expr
    then: str
    otherwise: str
    span: Span | None = _span()


@frozen
class Switch:
    """To the case that equals the string `subject`, else to `default`; no default: a fault."""

    subject: Expr
    cases: tuple[tuple[str, str], ...]
    default: str | None
    span: Span | None = _span()


@frozen
class Call:
    """Call a function value; its result goes to `slot`, then control to `next`."""

    callee: Expr
    args: tuple[Expr, ...]
    slot: str
    next: str
    span: Span | None = _span()


@frozen
class TailCall:
    """Replace this frame by a call."""

    callee: Expr
    args: tuple[Expr, ...]
    span: Span | None = _span()


@frozen
class Perform:
    """Ask the host for an effect of `kind` (`effects.EFFECTS`); `args` evaluates to a map.

    The machine stops here until the host answers; the answer goes to `slot`, control to `next`.
    """

    kind: str
    args: Expr
    slot: str
    next: str
    span: Span | None = _span()


@frozen
class Parallel:
    """Call a function once for each item of the list `items`, all at once, each with its own frames.

    When all have ended, the list of their results, in the order of the items, goes to `slot`, control
    to `next`; or the fault of the first item that failed is raised here.
    """

    callee: Expr
    items: Expr
    slot: str
    next: str
    span: Span | None = _span()


@frozen
class Return:
    value: Expr
    span: Span | None = _span()


@frozen
class Fail:
    """Raise a fault; `error` evaluates to its message (a string) or to a fault map."""

    error: Expr
    span: Span | None = _span()


Exit = Goto | Branch | Switch | Call | TailCall | Perform | Parallel | Return | Fail


@frozen
class Handler:
    """Where a fault in this state, or in a call it made, goes; the fault map is put in `slot`."""

    target: str
    slot: str


@frozen
class State:
    """Straight-line `body`, then one `exit`.

    A name with a `/` belongs to the author's state before the slash (`fix/route` belongs to `fix`);
    a name that begins with `/` belongs to the program as a whole.
    """

    name: str
    body: tuple[Instruction, ...]
    exit: Exit
    handler: Handler | None = None
    span: Span | None = _span()

    @property
    def owner(self) -> str:
        """The author's state this one was made for, or '' for the program's own states."""
        return self.name.partition("/")[0]


@frozen
class Function:
    """Frame layout: `parameters`, then `captures`, then `locals`; entry is the first state.

    rest: the last parameter takes the list of the arguments that the others leave over.
    """

    name: str
    parameters: tuple[str, ...]
    states: tuple[State, ...]
    captures: tuple[str, ...] = ()
    locals: tuple[str, ...] = ()
    rest: bool = False
    span: Span | None = _span()

    @property
    def slots(self) -> tuple[str, ...]:
        return self.parameters + self.captures + self.locals


@frozen
class Limits:
    """What bounds a run; None is no bound. The verifier proves that a program keeps to them.

    state_budgets: of states of the author's, the bounds by unit of what is spent in them.
    """

    max_iterations: int | None = None
    max_steps: int | None = None
    timeout_ms: int | None = None
    budget_usd: float | None = None
    budget_tokens: int | None = None
    budget_calls: int | None = None
    budget_seconds: float | None = None
    state_budgets: Mapping[str, Mapping[str, float]] = attrs.field(factory=dict)


@frozen
class InnerLoop:
    """A loop that a program runs within itself: its function, and what that keeps to.

    name: what its notes call it.
    """

    function: str
    name: str = ""
    maintain: bool = False
    limits: Limits = Limits()


@frozen
class Meta:
    """What a host should know of a program before it runs.

    kind: "loop" (has iterations, author's states) or "flow" (a value is all it has).
    paradigm: what it was written in; None for a flow.
    scope: paths it works on, for locks.
    maintain: a terminal may start the next cycle.
    loops: the loops it runs within itself, in the order of their functions.
    """

    kind: str = "flow"
    paradigm: str | None = None
    scope: tuple[str, ...] = (".",)
    maintain: bool = False
    limits: Limits = Limits()
    loops: tuple[InnerLoop, ...] = ()


@frozen
class Program:
    name: str
    entry: str
    functions: tuple[Function, ...]
    meta: Meta = Meta()
    sources: tuple[Source, ...] = attrs.field(default=(), kw_only=True, eq=False, repr=False)

    def function(self, name: str) -> Function:
        """The function called `name`; KeyError if there is none."""
        return self.by_name[name]

    @property
    def by_name(self) -> Mapping[str, Function]:
        return {function.name: function for function in self.functions}
