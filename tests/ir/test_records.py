"""Records are attrs classes with shared methods."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llc.ir.records import define, frozen


@frozen
class Record:
    left: object
    right: object = None
    span: object = attrs.field(default=None, kw_only=True, eq=False, repr=False)


@attrs.frozen
class AttrsRecord:
    left: object
    right: object = None
    span: object = attrs.field(default=None, kw_only=True, eq=False, repr=False)


@frozen
class CaseInsensitive:
    text: str = attrs.field(eq=str.lower)
    number: int = 0


@frozen
class SubRecord(Record):
    more: object = ()


@define
class MutableRecord:
    items: list[object]


VALUES = st.recursive(
    st.none() | st.integers(-2, 2) | st.text("ab", max_size=2),
    lambda inner: st.tuples(inner, inner),
    max_leaves=4,
)


@given(VALUES, VALUES, VALUES, VALUES)
def test_repr_equality_and_hash_agree_with_attrs(a: object, b: object, c: object, d: object) -> None:
    """Fields with `eq=False` or `repr=False` are ignored."""
    records, attrs_records = (
        (Record(a, b, span=1), Record(c, d, span=2)),
        (AttrsRecord(a, b, span=1), AttrsRecord(c, d, span=2)),
    )
    assert [repr(record) for record in records] == [
        repr(record).replace("AttrsRecord", "Record") for record in attrs_records
    ]
    assert (records[0] == records[1]) == (attrs_records[0] == attrs_records[1])
    assert (records[0] != records[1]) == (attrs_records[0] != attrs_records[1])
    assert records[0] != records[1] or hash(records[0]) == hash(records[1])


def test_record_is_an_attrs_class() -> None:
    """`attrs.fields`, `attrs.evolve` and positional patterns work."""
    record = Record(1, 2)
    assert attrs.evolve(record, left=3) == Record(3, 2)
    assert [field.name for field in attrs.fields(Record)] == ["left", "right", "span"]
    match record:
        case Record(left, right):
            assert (left, right) == (1, 2)


def test_eq_key_of_a_field() -> None:
    """The key of a field applies to equality and hash."""
    assert CaseInsensitive("A") == CaseInsensitive("a") != CaseInsensitive("b")
    assert hash(CaseInsensitive("A")) == hash(CaseInsensitive("a"))
    assert CaseInsensitive("a", 1) != CaseInsensitive("a", 2)


def test_records_of_two_classes_are_never_equal() -> None:
    """Also if one is a subclass of the other."""
    assert Record(1) != SubRecord(1)
    assert SubRecord(1, more=2) == SubRecord(1, more=2) != SubRecord(1, more=3)


def test_mutable_record_is_comparable_but_not_hashable() -> None:
    """A record that contains itself has a representation."""
    record = MutableRecord([1])
    assert record == MutableRecord([1])
    with pytest.raises(TypeError):
        hash(record)
    record.items.append(record)
    assert repr(record) == "MutableRecord(items=[1, ...])"


def test_own_method_overrides_the_shared_one() -> None:

    @frozen
    class Named:
        name: str

        def __repr__(self) -> str:
            return self.name

    assert repr(Named("x")) == "x"


def test_eq_argument_of_a_record() -> None:
    """`eq=False` compares by identity; `eq=True` uses the methods of attrs."""

    @frozen(eq=False)
    class Node:
        value: int

    @frozen(eq=True)
    class Position:
        value: int

    assert Node(1) != Node(1)
    assert len({Node(1), Node(1)}) == 2
    assert Position(1) == Position(1)
    assert len({Position(1), Position(1)}) == 1


def test_a_frozen_record_cannot_be_changed() -> None:
    """After `records.freeze`, as in all tests, a field is set once, also in a subclass; mutable records can
    change.
    """
    record = SubRecord(1, more=2)
    for name in ("left", "right", "more"):
        with pytest.raises(AttributeError, match=f"`SubRecord` is frozen: `{name}` cannot be set"):
            setattr(record, name, 3)
    assert attrs.evolve(record, left=3) == SubRecord(3, more=2)
    changing = MutableRecord([])
    changing.items = [1]
    assert changing.items == [1]
