"""Core language: the syntax tree of an S-expression program after expansion.

Nineteen nodes, names resolved. A `Binding` is a variable and has identity: two variables of one name
are two bindings, so no later pass looks at names or scopes. Nodes are compared
by identity and may be deep (a `cond` of ten thousand clauses is that many nested `If`s, in
`otherwise`): walk them with `children` and a work list, never by recursion.

Must not contain: expansion of forms (`expand`), or lowering to states (`lower`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_args

import attrs

from ...ir.records import frozen
from ...ir.spans import Span


class Binding:
    """A variable: a parameter, or a name bound by `let`, `define`, `bind`, `catch` and similar forms.

    name: as written. span: where it is bound (None: made by a form). owner: the function it belongs
    to, an opaque token. is_assigned: some `Assign` stores to it after it first got its value.
    references: how often it is read. is_dynamic: it has a value for each strand.
    """

    __slots__ = ("is_assigned", "is_dynamic", "name", "owner", "references", "span")

    def __init__(self, name: str, span: Span | None = None, owner: object = None) -> None:
        self.name = name
        self.span = span
        self.owner = owner
        self.is_assigned = False
        self.is_dynamic = False
        self.references = 0

    def __repr__(self) -> str:
        return f"<binding {self.name}>"


def _span() -> Any:
    return attrs.field(default=None, kw_only=True, repr=False)


@frozen(eq=False)
class Literal:
    """A constant: a value of the machine (lists are tuples, symbols are `Symbol`s)."""

    value: Any
    span: Span | None = _span()


@frozen(eq=False)
class Variable:
    """The value of a variable; fault `uninitialised` if it has none yet."""

    binding: Binding
    span: Span | None = _span()


@frozen(eq=False)
class Library:
    """A function of the library by its name (`library.LIBRARY`), as a callee or as a value."""

    name: str
    span: Span | None = _span()


@frozen(eq=False)
class External:
    """A function of the program that is not written in core: a loop (`parts.LoopPart`)."""

    part: Any
    span: Span | None = _span()


@frozen(eq=False)
class Assign:
    """Store in a variable; the value is what was stored."""

    binding: Binding
    value: Core
    span: Span | None = _span()


@frozen(eq=False)
class If:
    test: Core
    then: Core
    otherwise: Core
    span: Span | None = _span()


@frozen(eq=False)
class Lambda:
    """A function. Defaults of optional parameters see the parameters before them; `rest` gets a list.

    name: its name in states and backtraces, or ''.
    """

    parameters: tuple[Binding, ...]
    optionals: tuple[tuple[Binding, Core], ...]
    rest: Binding | None
    body: Core
    name: str = ""
    span: Span | None = _span()

    @property
    def least(self) -> int:
        """The least number of arguments."""
        return len(self.parameters)

    @property
    def most(self) -> int | None:
        """The greatest number of arguments; None if there is no limit."""
        return None if self.rest else len(self.parameters) + len(self.optionals)


@frozen(eq=False)
class Let:
    """Evaluate and bind in order; a value can use earlier bindings only.

    Bindings are unique, so the same node says `let` and `let*`.
    """

    bindings: tuple[tuple[Binding, Core], ...]
    body: Core
    span: Span | None = _span()


@frozen(eq=False)
class Letrec:
    """As `Let`, but functions among the values may use every binding (`letrec*` of R7RS).

    Bodies with definitions, and the whole program, are one of these: an expression between two
    definitions is the value of a binding with the name '', which nothing refers to.
    """

    bindings: tuple[tuple[Binding, Core], ...]
    body: Core
    span: Span | None = _span()


@frozen(eq=False)
class Loop:
    """Bind as `Let` does, then evaluate the body; a `Recur` in it starts it again.

    No function boundary: body and surroundings share a frame.
    """

    bindings: tuple[tuple[Binding, Core], ...]
    body: Core
    span: Span | None = _span()


@frozen(eq=False)
class Recur:
    """Evaluate all arguments, bind them to the variables of the nearest `Loop`, and start its body again.

    Always in tail position of that loop's body, never inside a function or a `Try` in it.
    """

    args: tuple[Core, ...]
    span: Span | None = _span()


@frozen(eq=False)
class Sequence:
    """Evaluate all items, at least one; the value is that of the last. Items are never sequences."""

    items: tuple[Core, ...]
    span: Span | None = _span()


@frozen(eq=False)
class Apply:
    """Call a function: callee first, then arguments, left to right.

    spread: a list whose items are further arguments (`apply`).
    """

    callee: Core
    args: tuple[Core, ...]
    spread: Core | None = None
    span: Span | None = _span()


@frozen(eq=False)
class Parallel:
    """Call a function for each item of a list concurrently; the list of the results."""

    callee: Core
    items: Core
    span: Span | None = _span()


@frozen(eq=False)
class Operation:
    """A primitive of the machine (`ir.primitives`) on values, left to right."""

    op: str
    args: tuple[Core, ...]
    span: Span | None = _span()


@frozen(eq=False)
class Perform:
    """An effect of a kind (`ir.effects.EFFECTS`); the value is its result map.

    A field whose value is null is left out.
    """

    kind: str
    fields: tuple[tuple[str, Core], ...]
    span: Span | None = _span()


@frozen(eq=False)
class Note:
    """Emit a note to the host (`ir.effects.NOTES`); the value is null."""

    kind: str
    fields: tuple[tuple[str, Core], ...]
    span: Span | None = _span()


@frozen(eq=False)
class Fail:
    """Raise a fault: of kind `user` with a string as message, or the fault that a map describes."""

    error: Core
    span: Span | None = _span()


@frozen(eq=False)
class Try:
    """The body's value. A fault in the body is bound as a map, and the value is the handler's.

    The handler is in tail position, the body is not.
    """

    body: Core
    binding: Binding
    handler: Core
    span: Span | None = _span()


Core = (
    Literal
    | Variable
    | Library
    | External
    | Assign
    | If
    | Lambda
    | Let
    | Letrec
    | Loop
    | Recur
    | Sequence
    | Apply
    | Parallel
    | Operation
    | Perform
    | Note
    | Fail
    | Try
)


def children(node: Core) -> tuple[Core, ...]:
    """The nodes directly inside a node, in the order they are evaluated."""
    return _CHILDREN[type(node)](node)


# A table, not a `match`: every pass over a program asks each node.
_CHILDREN: dict[type, Callable[[Any], tuple[Core, ...]]] = {
    **dict.fromkeys((Literal, Variable, Library, External), lambda node: ()),
    Assign: lambda node: (node.value,),
    Fail: lambda node: (node.error,),
    If: lambda node: (node.test, node.then, node.otherwise),
    Lambda: lambda node: (*[default for _, default in node.optionals], node.body),
    **dict.fromkeys((Let, Letrec, Loop), lambda node: (*[value for _, value in node.bindings], node.body)),
    **dict.fromkeys((Recur, Operation), lambda node: node.args),
    Sequence: lambda node: node.items,
    Apply: lambda node: (node.callee, *node.args, *(() if node.spread is None else (node.spread,))),
    Parallel: lambda node: (node.callee, node.items),
    **dict.fromkeys((Perform, Note), lambda node: tuple([value for _, value in node.fields])),
    Try: lambda node: (node.body, node.handler),
}

# Nodes without children: most of a program.
LEAVES = frozenset({Literal, Variable, Library, External})

if _CHILDREN.keys() != {*get_args(Core)}:
    raise AssertionError("the table of children leaves out a node")


def walk(node: Core) -> Iterator[Core]:
    """A node and every node in it: outer before inner, in the order they are evaluated."""
    todo = [node]
    while todo:
        node = todo.pop()
        yield node
        if type(node) not in LEAVES:
            todo += children(node)[::-1]


def sequence(items: Iterable[Core], span: Span | None) -> Core:
    """Items one after another; nil for none."""
    flat: list[Core] = []
    for item in items:
        if isinstance(item, Sequence):
            flat += item.items
        else:
            flat.append(item)
    if not flat:
        return Literal((), span=span)
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat), span=span)
