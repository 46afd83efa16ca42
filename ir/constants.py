"""What a constant of a program may be, and how large; for the IR and for code images alike. Symbols.

A symbol is a name as a value, one object for each name: it equals itself only, never a string, and is true.
Must not import anything heavy: a run of a compiled image checks its constants.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Kept for the life of the process: a program that invents symbols without end pays for them as for
# any other value.
_KNOWN: dict[str, Symbol] = {}


class Symbol:
    """The symbol called `name`. `Symbol("a") is Symbol("a")`."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str) -> Symbol:
        known = _KNOWN.get(name)
        if known is None:
            symbol = object.__new__(cls)
            object.__setattr__(symbol, "name", name)
            # Of two threads that make the same symbol, the first is kept.
            known = _KNOWN.setdefault(name, symbol)
        return known

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a symbol does not change")

    def __repr__(self) -> str:
        return f"Symbol({self.name!r})"

    def __reduce__(self) -> tuple[type[Symbol], tuple[str]]:
        """Copies and unpickled symbols are the symbol itself."""
        return (Symbol, (self.name,))


# How deep an expression or a constant may be nested: what walks one may then use Python's stack.
MAX_NESTING = 200
# How many items and characters a constant may have when it is written out. Parts can be shared, so
# a few nodes of an image could otherwise stand for more than memory holds.
MAX_SIZE = 1 << 24

ATOMS = frozenset({type(None), bool, int, float, str, Symbol})


def constant_problem(value: Any) -> str | None:
    """What keeps `value` from being a constant of a program, None where nothing does.

    Looks at each shared part once, and uses no recursion.
    """
    if type(value) in ATOMS:
        return "a constant is too large" if _size(value) > MAX_SIZE else None
    # By identity: how deep and how large a container is, None as long as its parts are measured.
    measured: dict[int, tuple[int, int] | None] = {}
    stack = [value]
    while stack:
        node = stack[-1]
        if measured.get(id(node)) is not None:
            stack.pop()
            continue
        if type(node) is tuple:
            parts = node
            size = 1
        elif type(node) is dict:
            for key in node:
                if type(key) is not str:
                    return f"a map's key must be a string, not {type(key).__name__}"
            parts = tuple(node.values())
            size = 1 + sum(map(len, node))
        else:
            return f"a {type(node).__name__} is no value of the language"
        containers = [part for part in parts if type(part) not in ATOMS]
        if id(node) not in measured:
            measured[id(node)] = None
            if any(measured.get(id(part), ()) is None for part in containers):
                return "a constant contains itself"
            waiting = [part for part in containers if id(part) not in measured]
            if waiting:
                stack.extend(waiting)
                continue
        stack.pop()
        inner = [measure for part in containers if (measure := measured[id(part)]) is not None]
        depth = 1 + max((depth for depth, _ in inner), default=0)
        size += sum(size for _, size in inner) + sum(_size(part) for part in parts if type(part) in ATOMS)
        if depth > MAX_NESTING:
            return f"a constant is nested deeper than {MAX_NESTING}"
        if size > MAX_SIZE:
            return "a constant is too large"
        measured[id(node)] = (depth, size)
    return None


def _size(atom: Any) -> int:
    """About how many characters an atom takes when it is written out."""
    if type(atom) is str:
        return 1 + len(atom)
    if type(atom) is Symbol:
        return 1 + len(atom.name)
    return 1 + atom.bit_length() // 4 if type(atom) is int else 1
