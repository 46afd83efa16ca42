"""Outcomes of `Machine.resume`: an effect to perform, waiting, the end, or exhausted fuel."""

from __future__ import annotations

from ..values.faults import Fault, Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias


class Effect:
    """A request to the host; `resume` takes the result.

    `seq` counts effects from 1, `args` is plain data, `span` is the source place of the request.
    """

    __slots__ = ("args", "kind", "seq", "span")

    def __init__(self, seq: int, kind: str, args: dict[str, Any], span: Place | None = None) -> None:
        self.seq = seq
        self.kind = kind
        self.args = args
        self.span = span

    def __repr__(self) -> str:
        return f"Effect({self.seq}, {self.kind!r}, {self.args!r})"


class Done:
    """The program ended; `value` is plain data."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Done({self.value!r})"


class Waiting:
    """Nothing can run until one of the pending effects (`Machine.waiting`) has its result."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Waiting()"


class OutOfFuel:
    """All fuel is used; after `refuel`, `resume` continues."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "OutOfFuel()"


class NoAnswer:
    """Type of the default argument of `resume`, because None is a valid result."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NO_ANSWER"


NO_ANSWER = NoAnswer()

# What stops a machine, other than exhausted fuel.
Outcome: TypeAlias = "Effect | Waiting | Done | Fault"
