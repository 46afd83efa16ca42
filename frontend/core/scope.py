"""Scopes, and the identifiers that macros create (hygiene).

An identifier is an atom that holds a symbol, or an `Alias`: a symbol that a macro's template put
into a program, together with the scope of the macro. An alias that the program binds is that
binding; any other means what its symbol means where the macro was defined. That is all hygiene needs
(A. Petrofsky, "explicit renaming as in eiod"; R7RS 4.3).

Must not contain: handlers of forms, or the filling of templates (`syntax_rules`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from ...ir.constants import Symbol
from ..sexp.datum import Atom, Datum
from .nodes import Binding


class Alias(Symbol):
    """A symbol that one expansion of a macro inserted. Equal to itself only, printed as the symbol.

    siblings: all aliases of that expansion, by symbol.
    """

    __slots__ = ("scope", "siblings", "symbol")
    scope: Scope
    siblings: dict[Symbol, Alias]
    symbol: Symbol

    def __new__(cls, symbol: Symbol, scope: Scope, siblings: dict[Symbol, Alias]) -> Alias:
        alias = object.__new__(cls)
        object.__setattr__(alias, "name", symbol.name)
        object.__setattr__(alias, "symbol", symbol)
        object.__setattr__(alias, "scope", scope)
        object.__setattr__(alias, "siblings", siblings)
        return alias


# A name in the expander: a symbol, or an alias of one.
Identifier: TypeAlias = Symbol


class FunctionMark:
    """Identity of a function under expansion, to detect captured variables."""

    __slots__ = ("name",)

    def __init__(self, name: str = "") -> None:
        self.name = name


class Frame:
    """A body in which `bind` defines: of a function, a `let`, or the program.

    late: variables created by a `bind` inside another form; their first value is null.
    """

    __slots__ = ("function", "is_top", "late", "scope")

    def __init__(self, scope: Scope, function: FunctionMark, is_top: bool = False) -> None:
        self.scope = scope
        self.function = function
        self.is_top = is_top
        self.late: list[Binding] = []


class Scope:
    """A lexical scope: names bound in one place, inside a parent scope.

    names: what each identifier is: a Binding, or anything the expander knows by another meaning.
    function, frame: where code in this scope belongs; inherited.
    loop: the number of arguments of `recur` here, None outside loops.
    hidden: explains why a name bound nearby is not visible here; called only for an error message.
    """

    __slots__ = ("frame", "function", "hidden", "loop", "names", "parent")

    def __init__(
        self,
        parent: Scope | None,
        *,
        function: FunctionMark | None = None,
        frame: Frame | None = None,
        loop: int | None = None,
        hidden: Callable[[str], str | None] | None = None,
    ) -> None:
        self.parent = parent
        self.names: dict[Identifier, Any] = {}
        self.hidden = hidden
        self.loop = loop
        if parent is not None:
            function = function or parent.function
            frame = frame or parent.frame
            if loop is None and function is parent.function:
                self.loop = parent.loop
        self.function: FunctionMark = function or FunctionMark()
        self.frame: Frame = frame or Frame(self, self.function, is_top=True)

    def find(self, identifier: Identifier) -> Any:
        """The meaning of an identifier in this scope; None if it is unbound."""
        scope: Scope | None = self
        while True:
            while scope is not None:
                found = scope.names.get(identifier)
                if found is not None:
                    return found
                scope = scope.parent
            if not isinstance(identifier, Alias):
                return None
            scope = identifier.scope
            identifier = identifier.symbol

    def chain(self) -> Iterator[Scope]:
        """This scope and its parents, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def visible_names(self) -> set[str]:
        """All names that are visible here, as written by the author."""
        return {name.name for scope in self.chain() for name in scope.names if type(name) is Symbol}


def identifier_of(datum: Datum) -> Identifier | None:
    """The identifier a datum is, or None."""
    if type(datum) is Atom:
        value = datum.value
        if isinstance(value, Symbol):
            return value
    return None


def base_symbol(identifier: Identifier) -> Symbol:
    """The symbol the author of program or macro wrote."""
    while isinstance(identifier, Alias):
        identifier = identifier.symbol
    return identifier


def is_same_meaning(left: Identifier, left_scope: Scope, right: Identifier, right_scope: Scope) -> bool:
    """Whether two identifiers have the same meaning, each in its scope (`free-identifier=?`)."""
    one = left_scope.find(left)
    other = right_scope.find(right)
    if one is None and other is None:
        return base_symbol(left) is base_symbol(right)
    return one is other


def is_word(datum: Datum, word: str, scope: Scope) -> bool:
    """Whether a datum is an auxiliary word such as `else` that is not bound to a variable."""
    identifier = identifier_of(datum)
    return identifier is not None and identifier.name == word and scope.find(identifier) is None


def value_of(datum: Datum) -> Any:
    """The machine's value for quoted data: lists are tuples. A dotted tail is a ValueError."""
    done: list[list[Any]] = [[]]
    todo: list[tuple[Datum, bool]] = [(datum, False)]
    while todo:
        node, is_read = todo.pop()
        if isinstance(node, Atom):
            value = node.value
            done[-1].append(base_symbol(value) if isinstance(value, Alias) else value)
        elif node.tail is not None:
            raise ValueError("a dotted pair is not a value")
        elif is_read:
            items = done.pop()
            done[-1].append(tuple(items))
        else:
            todo.append((node, True))
            todo.extend((item, False) for item in reversed(node.items))
            done.append([])
    return done[0][0]
