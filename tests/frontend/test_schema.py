"""Schema blocks: fields, defaults and equality."""

from __future__ import annotations

from typing import ClassVar

import pytest

from llc.frontend.source.schema import TEXT, Spec, fields_of, internal, optional, required


class Shape(Spec):
    """A schema block."""

    noun: ClassVar[str] = "shape"

    name: str = required(TEXT, "Its name.")
    sides: int = optional(TEXT, "Its sides.", 3)
    marks: dict[str, int] = optional(TEXT, "Its marks.", factory=dict)
    note: str = internal("")


class Named(Shape):
    """A block that redeclares an inherited key."""

    name: str = optional(TEXT, "Its name.", "none")


def test_a_block_has_its_fields_and_defaults() -> None:
    """A factory makes a new default for each block."""
    one, other = Shape(name="a"), Shape(name="a", sides=4)
    assert (one.name, one.sides, one.marks, one.note, one.span, one.flawed) == ("a", 3, {}, "", None, False)
    assert other.sides == 4
    assert one.marks is not other.marks
    assert list(fields_of(Shape)) == ["name", "sides", "marks"]
    assert list(fields_of(Named)) == ["sides", "marks", "name"]
    assert Named().name == "none"


def test_equality_compares_only_keys() -> None:
    """Fields that no document sets are ignored."""
    assert Shape(name="a", note="x", flawed=True) == Shape(name="a")
    assert Shape(name="a") != Shape(name="b")
    assert Shape(name="none") != Named()
    assert repr(Shape(name="a", note="x")) == "Shape(name='a', sides=3, marks={})"


def test_evolve_returns_a_changed_copy() -> None:
    """The original block does not change."""
    one = Shape(name="a", sides=5, note="kept")
    changed = one.evolve(name="b")
    assert (changed.name, changed.sides, changed.note, one.name) == ("b", 5, "kept", "a")
    with pytest.raises(AttributeError, match="frozen"):
        one.name = "c"  # type: ignore[misc]


@pytest.mark.parametrize("values", [{}, {"sides": 1}, {"name": "a", "colour": "red"}])
def test_unknown_or_missing_field_is_an_error(values: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="Shape has the fields span, spans, flawed, name, sides, marks, note"):
        Shape(**values)  # type: ignore[arg-type]
