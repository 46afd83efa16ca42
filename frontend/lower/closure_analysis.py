"""Closure analysis of a core program, before any of its functions is lowered.

Owns all questions about the whole program: which functions are *known* (bound once to a lambda, so
that a call can name them and supply their captures), the captures of each function,
the variables that need a box, the constant variables, and the expressions that fit into one
instruction. Nothing here is recursive, because a program can be nested deeper than Python's stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..core import nodes as core

# The nodes that refer to a variable.
_BINDING = frozenset({core.Variable, core.Assign, core.Let, core.Letrec, core.Loop, core.Try})
# Maximal nesting of an expression; deeper ones are split with temporaries (`ir.constants.MAX_NESTING`).
_DEEPEST = 60
# Maximal length of a string literal that replaces the uses of its variable.
_SHORT_TEXT = 64


class ClosureAnalysis:
    """The results for one closed function and all functions inside it.

    Args:
        root: the closed function.
        shared: parameters of the root that are boxes already, possibly without a value.

    Attributes:
        known: the function of each variable that is bound to a known function.
        constants: the literal of each variable that is constant.
        boxed: variables in boxes, because a function captures them and they are assigned or defined late.
        early: the boxed variables that can be read before they are defined.
        assigned: variables that are assigned after their definition.
        used: variables that are read or assigned.
        simple: nodes that become a single expression.
        parents: the enclosing function of each function.
    """

    def __init__(
        self, root: core.Lambda, is_primitive: Callable[[str], bool], shared: Iterable[core.Binding] = ()
    ) -> None:
        self.known: dict[core.Binding, core.Lambda] = {}
        self.constants: dict[core.Binding, core.Literal] = {}
        self.boxed: set[core.Binding] = set()
        self.early: set[core.Binding] = set(shared)
        self.simple: set[core.Core] = set()
        self.parents: dict[core.Lambda, core.Lambda | None] = {}
        self._captures: dict[core.Lambda, dict[core.Binding, None]] = {}
        self._is_primitive = is_primitive
        self._order: dict[core.Binding, int] = {}
        self._homes: dict[core.Binding, core.Lambda] = {}
        self._known_functions: set[core.Lambda] = set()
        self.assigned = {node.binding for node in core.walk(root) if isinstance(node, core.Assign)}
        self.used = set(self.assigned)
        # By function: the variables that it refers to directly, and the functions whose captures it needs.
        self._named: dict[core.Lambda, dict[core.Binding, None]] = {}
        self._users: dict[core.Lambda, dict[core.Lambda, None]] = {}
        # Evaluation time at which a letrec variable gets its value; absent if it has it from the start.
        self._valued: dict[core.Binding, int] = {}
        # (function, function whose closure it creates) → evaluation time of the first creation.
        self._made: dict[tuple[core.Lambda, core.Lambda], int] = {}
        self._time = 0
        nodes = self._survey(root)
        self._solve()
        self._settle_boxes()
        self._find_simple(nodes)

    def of(self, function: core.Lambda) -> tuple[core.Binding, ...]:
        """The variables of enclosing functions that a function captures, in the order of their bindings."""
        return tuple(sorted(self._captures[function], key=self._order.__getitem__))

    # --- the survey ---------------------------------------------------------------------------

    def _survey(self, root: core.Lambda) -> list[core.Core]:
        """Visit all nodes in evaluation order; return them, outer before inner."""
        nodes: list[core.Core] = []
        pending: set[core.Binding] = set()
        late: set[core.Binding] = set()
        # Work stack: visit a node inside a function, or record that a variable has its value.
        todo: list[tuple[Any, core.Lambda | None]] = [(root, None)]
        while todo:
            item, within = todo.pop()
            if isinstance(item, core.Binding):
                pending.discard(item)
                self._valued[item] = self._time
                continue
            node: core.Core = item
            nodes.append(node)
            self._time += 1
            if isinstance(node, core.Lambda):
                self._enter(node, within)
                inner = [*[default for _, default in node.optionals], node.body]
                todo += [(child, node) for child in reversed(inner)]
                continue
            assert within is not None
            if type(node) not in _BINDING:
                todo += [(child, within) for child in reversed(core.children(node))]
                continue
            match node:
                case core.Variable(binding=binding) | core.Assign(binding=binding):
                    self.used.add(binding)
                    self._name(binding, within)
                    if binding in pending:
                        late.add(binding)
                        if self._homes[binding] is within and binding not in self.known:
                            self.early.add(binding)
                case core.Let(bindings=bindings):
                    for binding, value in bindings:
                        self._bind(binding, within)
                        self._classify(binding, value)
                case core.Letrec(bindings=bindings, body=body):
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
                case core.Loop(bindings=bindings):
                    for binding, _ in bindings:
                        self._bind(binding, within)
                case core.Try(binding=binding):
                    self._bind(binding, within)
            todo += [(child, within) for child in reversed(core.children(node))]
        for binding in late:
            self.constants.pop(binding, None)
        return nodes

    def _enter(self, function: core.Lambda, within: core.Lambda | None) -> None:
        self.parents[function] = within
        self._named.setdefault(function, {})
        self._users.setdefault(function, {})
        rest = () if function.rest is None else (function.rest,)
        for binding in (*function.parameters, *(binding for binding, _ in function.optionals), *rest):
            self._bind(binding, function)
        if within is not None and function not in self._known_functions:
            self._make(function, within)

    def _bind(self, binding: core.Binding, home: core.Lambda) -> None:
        self._homes[binding] = home
        self._order.setdefault(binding, len(self._order))

    def _classify(self, binding: core.Binding, value: core.Core) -> None:
        if binding in self.assigned:
            return
        if isinstance(value, core.Lambda):
            self.known[binding] = value
            self._known_functions.add(value)
        elif isinstance(value, core.Literal) and _is_short(value.value):
            self.constants[binding] = value

    def _name(self, binding: core.Binding, within: core.Lambda) -> None:
        function = self.known.get(binding)
        if function is None:
            self._named[within][binding] = None
        else:
            self._make(function, within)

    def _make(self, function: core.Lambda, within: core.Lambda) -> None:
        self._users.setdefault(function, {})[within] = None
        self._made.setdefault((within, function), self._time)

    # --- what follows from it -----------------------------------------------------------------

    def _solve(self) -> None:
        """Compute captures: the variables that a function refers to, and the captures of functions that it
        creates.
        """
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

    def _find_simple(self, nodes: list[core.Core]) -> None:
        depths: dict[core.Core, int] = {}
        for node in reversed(nodes):
            depth = self._depth(node, depths)
            if 0 < depth <= _DEEPEST:
                depths[node] = depth
                self.simple.add(node)

    def _depth(self, node: core.Core, depths: dict[core.Core, int]) -> int:
        """Depth of the expression for a node; 0 if the node is not a single expression."""
        if type(node) in core.LEAVES:
            return 2  # a variable may need a box read
        match node:
            case core.Lambda():
                return 2
            case core.Operation(args=args):
                parts: tuple[core.Core, ...] = args
            case core.Apply(callee=core.Library(name=name), args=args, spread=None) if self._is_primitive(
                name
            ):
                parts = args
            case core.If(test=test, then=then, otherwise=otherwise) if self._is_total(
                then
            ) and self._is_total(otherwise):
                parts = (test,)
            case _:
                return 0
        inner = [depths.get(part, 0) for part in parts]
        return 0 if 0 in inner else 1 + max(inner, default=0)

    def _is_total(self, node: core.Core) -> bool:
        """Whether evaluating a node is cheap and cannot fault."""
        return isinstance(node, core.Literal) or (
            isinstance(node, core.Variable) and node.binding not in self.early
        )


def _is_short(value: Any) -> bool:
    return (
        value is None
        or type(value) in (bool, int, float)
        or (type(value) is str and len(value) <= _SHORT_TEXT)
    )
