"""Symbols: names as values, one object for each name.

A symbol equals itself only, never a string, and is true. Importable by every layer, at start-up too.
"""

from __future__ import annotations

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
