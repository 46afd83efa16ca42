"""Records are attrs classes with shared methods."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llc.ir.records import define, frozen


@frozen
class Ours:
    left: object
    right: object = None
    span: object = attrs.field(default=None, kw_only=True, eq=False, repr=False)


@attrs.frozen
class Theirs:
    left: object
    right: object = None
    span: object = attrs.field(default=None, kw_only=True, eq=False, repr=False)


@frozen
class Folded:
    text: str = attrs.field(eq=str.lower)
    number: int = 0


@frozen
class Inner(Ours):
    more: object = ()


@define
class Changing:
    items: list[object]


VALUES = st.recursive(
    st.none() | st.integers(-2, 2) | st.text("ab", max_size=2),
    lambda inner: st.tuples(inner, inner),
    max_leaves=4,
)


@given(VALUES, VALUES, VALUES, VALUES)
def test_a_record_is_shown_compared_and_hashed_as_attrs_would(
    a: object, b: object, c: object, d: object
) -> None:
    """Fields that are left out of either are left out."""
    ours, theirs = (Ours(a, b, span=1), Ours(c, d, span=2)), (Theirs(a, b, span=1), Theirs(c, d, span=2))
    assert [repr(one) for one in ours] == [repr(one).replace("Theirs", "Ours") for one in theirs]
    assert (ours[0] == ours[1]) == (theirs[0] == theirs[1])
    assert (ours[0] != ours[1]) == (theirs[0] != theirs[1])
    assert ours[0] != ours[1] or hash(ours[0]) == hash(ours[1])


def test_attrs_knows_a_record() -> None:
    """Its fields, evolving it, taking it apart by position."""
    one = Ours(1, 2)
    assert attrs.evolve(one, left=3) == Ours(3, 2)
    assert [field.name for field in attrs.fields(Ours)] == ["left", "right", "span"]
    match one:
        case Ours(left, right):
            assert (left, right) == (1, 2)


def test_what_a_field_is_compared_by_counts() -> None:
    """A field's own key decides, in equality and hash."""
    assert Folded("A") == Folded("a") != Folded("b")
    assert hash(Folded("A")) == hash(Folded("a"))
    assert Folded("a", 1) != Folded("a", 2)


def test_records_of_two_classes_are_never_equal() -> None:
    """Not even where one extends the other."""
    assert Ours(1) != Inner(1)
    assert Inner(1, more=2) == Inner(1, more=2) != Inner(1, more=3)


def test_a_record_that_changes_is_compared_but_not_hashed() -> None:
    """As attrs has it; and one that contains itself can be shown."""
    one = Changing([1])
    assert one == Changing([1])
    with pytest.raises(TypeError):
        hash(one)
    one.items.append(one)
    assert repr(one) == "Changing(items=[1, ...])"


def test_what_a_class_says_itself_is_kept() -> None:
    """A method of its own goes before the shared one."""

    @frozen
    class Named:
        name: str

        def __repr__(self) -> str:
            return self.name

    assert repr(Named("x")) == "x"


def test_records_may_be_told_apart_by_identity() -> None:
    """`eq=False` leaves equality alone, `eq=True` leaves it to attrs."""

    @frozen(eq=False)
    class Node:
        value: int

    @frozen(eq=True)
    class Place:
        value: int

    assert Node(1) != Node(1)
    assert len({Node(1), Node(1)}) == 2
    assert Place(1) == Place(1)
    assert len({Place(1), Place(1)}) == 1


def test_a_frozen_record_cannot_be_changed() -> None:
    """The tests run with `records.freeze`: a field is set once, in a subclass too; others can change."""
    record = Inner(1, more=2)
    for name in ("left", "right", "more"):
        with pytest.raises(AttributeError, match=f"`Inner` is frozen: `{name}` cannot be set"):
            setattr(record, name, 3)
    assert attrs.evolve(record, left=3) == Inner(3, more=2)
    changing = Changing([])
    changing.items = [1]
    assert changing.items == [1]
