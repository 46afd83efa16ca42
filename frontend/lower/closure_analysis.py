"""Closure analysis of a core program, before any of its functions is lowered.

Owns the questions that need the whole program: which functions are *known* (bound once to a lambda,
so that a call names it and its captures are filled in where it is called), what a function captures,
which variables need a box, which are constants, and which expressions can stand inside one
instruction. Nothing here recurses over a program: it may be nested deeper than Python's stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..core.nodes import (
    LEAVES,
    Apply,
    Assign,
    Binding,
    Core,
    If,
    Lambda,
    Let,
    Letrec,
    Library,
    Literal,
    Loop,
    Operation,
    Try,
    Variable,
    children,
    walk,
)

# The nodes that name a variable.
_BINDING = frozenset({Variable, Assign, Let, Letrec, Loop, Try})
# An expression nested deeper than this is taken apart over temporaries (`ir.constants.MAX_NESTING`).
_DEEPEST = 60
# A literal text up to this length stands where the variable bound to it is used.
_SHORT_TEXT = 64


class ClosureAnalysis:
    """The answers for one closed function and all functions in it.

    known: variables that are functions, by their binding. constants: variables that are literals.
    boxed: variables that live in a box, since a function captures them and they change or have
    their value late; `early` are those of the latter kind. assigned, used: variables that are stored
    to after they got their value, and those that anything looks at or stores to. simple: nodes that
    become one expression. parents: the function around each function.

    shared: parameters of the root that come in boxes of their own, which may have no value yet.
    """

    def __init__(
        self, root: Lambda, is_primitive: Callable[[str], bool], shared: Iterable[Binding] = ()
    ) -> None:
        self.known: dict[Binding, Lambda] = {}
        self.constants: dict[Binding, Literal] = {}
        self.boxed: set[Binding] = set()
        self.early: set[Binding] = set(shared)
        self.simple: set[Core] = set()
        self.parents: dict[Lambda, Lambda | None] = {}
        self._captures: dict[Lambda, dict[Binding, None]] = {}
        self._is_primitive = is_primitive
        self._order: dict[Binding, int] = {}
        self._homes: dict[Binding, Lambda] = {}
        self._known_functions: set[Lambda] = set()
        self.assigned = {node.binding for node in walk(root) if isinstance(node, Assign)}
        self.used = set(self.assigned)
        # By function: the variables it names itself, and the functions whose captures it needs.
        self._named: dict[Lambda, dict[Binding, None]] = {}
        self._users: dict[Lambda, dict[Lambda, None]] = {}
        # When, in the order of evaluation, a letrec's variable has its value; absent: from the start.
        self._valued: dict[Binding, int] = {}
        # (function, function it makes a closure of) → when it first does.
        self._made: dict[tuple[Lambda, Lambda], int] = {}
        self._time = 0
        nodes = self._survey(root)
        self._solve()
        self._settle_boxes()
        self._find_simple(nodes)

    def of(self, function: Lambda) -> tuple[Binding, ...]:
        """The variables of enclosing functions that a function needs, in the order they are bound."""
        return tuple(sorted(self._captures[function], key=self._order.__getitem__))

    # --- the survey ---------------------------------------------------------------------------

    def _survey(self, root: Lambda) -> list[Core]:
        """Visit everything in the order of evaluation; the nodes, outer before inner."""
        nodes: list[Core] = []
        pending: set[Binding] = set()
        late: set[Binding] = set()
        # What is left to do, last first: visit a node inside a function, or note a variable's value.
        todo: list[tuple[Any, Lambda | None]] = [(root, None)]
        while todo:
            item, within = todo.pop()
            if isinstance(item, Binding):
                pending.discard(item)
                self._valued[item] = self._time
                continue
            node: Core = item
            nodes.append(node)
            self._time += 1
            if isinstance(node, Lambda):
                self._enter(node, within)
                inner = [*[default for _, default in node.optionals], node.body]
                todo += [(child, node) for child in reversed(inner)]
                continue
            assert within is not None
            if type(node) not in _BINDING:
                todo += [(child, within) for child in reversed(children(node))]
                continue
            match node:
                case Variable(binding=binding) | Assign(binding=binding):
                    self.used.add(binding)
                    self._name(binding, within)
                    if binding in pending:
                        late.add(binding)
                        if self._homes[binding] is within and binding not in self.known:
                            self.early.add(binding)
                case Let(bindings=bindings):
                    for binding, value in bindings:
                        self._bind(binding, within)
                        self._classify(binding, value)
                case Letrec(bindings=bindings, body=body):
                    todo.append((body, within))
                    for binding, value in bindings:
                        self._bind(binding, within)
                        self._classify(binding, value)
                    for binding, value in reversed(bindings):
                        if binding not in self.known:
                            pending.add(binding)
                            todo.append((binding, None))
                        todo.append((value, within))
                    continue
                case Loop(bindings=bindings):
                    for binding, _ in bindings:
                        self._bind(binding, within)
                case Try(binding=binding):
                    self._bind(binding, within)
            todo += [(child, within) for child in reversed(children(node))]
        for binding in late:
            self.constants.pop(binding, None)
        return nodes

    def _enter(self, function: Lambda, within: Lambda | None) -> None:
        self.parents[function] = within
        self._named.setdefault(function, {})
        self._users.setdefault(function, {})
        rest = () if function.rest is None else (function.rest,)
        for binding in (*function.parameters, *(binding for binding, _ in function.optionals), *rest):
            self._bind(binding, function)
        if within is not None and function not in self._known_functions:
            self._make(function, within)

    def _bind(self, binding: Binding, home: Lambda) -> None:
        self._homes[binding] = home
        self._order.setdefault(binding, len(self._order))

    def _classify(self, binding: Binding, value: Core) -> None:
        if binding in self.assigned:
            return
        if isinstance(value, Lambda):
            self.known[binding] = value
            self._known_functions.add(value)
        elif isinstance(value, Literal) and _is_short(value.value):
            self.constants[binding] = value

    def _name(self, binding: Binding, within: Lambda) -> None:
        function = self.known.get(binding)
        if function is None:
            self._named[within][binding] = None
        else:
            self._make(function, within)

    def _make(self, function: Lambda, within: Lambda) -> None:
        self._users.setdefault(function, {})[within] = None
        self._made.setdefault((within, function), self._time)

    # --- what follows from it -----------------------------------------------------------------

    def _solve(self) -> None:
        """Captures: what a function names, and what those need that it makes, but for its own."""
        self._captures = {function: {} for function in self._named}
        todo = [
            (function, binding)
            for function, named in self._named.items()
            for binding in named
            if binding not in self.constants
        ]
        while todo:
            function, binding = todo.pop()
            captures = self._captures[function]
            if self._homes[binding] is not function and binding not in captures:
                captures[binding] = None
                todo += [(user, binding) for user in self._users[function]]

    def _settle_boxes(self) -> None:
        for (within, function), time in self._made.items():
            for binding in self._captures[function]:
                if self._homes[binding] is within and self._valued.get(binding, -1) >= time:
                    self.early.add(binding)
        self.boxed = set(self.early)
        for captures in self._captures.values():
            self.boxed.update(binding for binding in captures if binding in self.assigned)

    def _find_simple(self, nodes: list[Core]) -> None:
        depths: dict[Core, int] = {}
        for node in reversed(nodes):
            depth = self._depth(node, depths)
            if 0 < depth <= _DEEPEST:
                depths[node] = depth
                self.simple.add(node)

    def _depth(self, node: Core, depths: dict[Core, int]) -> int:
        """How deep the expression for a node is, 0 where it takes more than an expression."""
        if type(node) in LEAVES:
            return 2  # a variable may be read from a box
        match node:
            case Lambda():
                return 2
            case Operation(args=args):
                parts: tuple[Core, ...] = args
            case Apply(callee=Library(name=name), args=args, spread=None) if self._is_primitive(name):
                parts = args
            case If(test=test, then=then, otherwise=otherwise) if self._is_total(then) and self._is_total(
                otherwise
            ):
                parts = (test,)
            case _:
                return 0
        inner = [depths.get(part, 0) for part in parts]
        return 0 if 0 in inner else 1 + max(inner, default=0)

    def _is_total(self, node: Core) -> bool:
        """Whether evaluating a node costs next to nothing and never faults."""
        return isinstance(node, Literal) or (isinstance(node, Variable) and node.binding not in self.early)


def _is_short(value: Any) -> bool:
    return (
        value is None
        or type(value) in (bool, int, float)
        or (type(value) is str and len(value) <= _SHORT_TEXT)
    )
