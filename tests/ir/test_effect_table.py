"""The tables of effect kinds and note kinds: every row is complete and consistent."""

from __future__ import annotations

import pytest

from llc.ir.effects import EFFECT_ROWS, EFFECTS, FIELD_TYPES, NOTE_ROWS, NOTES, EffectKind, NoteKind


def names(words: str) -> list[str]:
    return [word.removesuffix("?") for word in words.split()]


def test_names_are_unique() -> None:
    assert len(EFFECTS) == len(EFFECT_ROWS)
    assert len(NOTES) == len(NOTE_ROWS)


@pytest.mark.parametrize("row", EFFECT_ROWS, ids=lambda row: row.name)
def test_an_effect_row_is_consistent(row: EffectKind) -> None:
    """Fields have types, subject and inputs are arguments, and an effect that waits can be bounded."""
    args, result = names(row.args), names(row.result)
    assert set(args + result) <= FIELD_TYPES.keys()
    assert not row.subject or row.subject in args
    assert bool(row.subject) == bool(args)
    assert not row.inputs or row.inputs in args
    assert set(row.optional.split()) <= set(result)
    assert not row.waits or {"elapsed_ms", "timed_out"} <= set(result)
    assert not row.waits or "deadline_ms" in args
    assert row.is_slow >= (row.waits or row.acts)
    assert row.is_work >= row.is_action
    assert row.spends >= row.is_model_call
    assert row.doc.endswith(".")


@pytest.mark.parametrize("row", NOTE_ROWS, ids=lambda row: row.name)
def test_a_note_row_is_consistent(row: NoteKind) -> None:
    """Each field is declared once."""
    fields = names(f"{row.fields} {row.more}")
    assert len(fields) == len(set(fields))
    assert row.doc.endswith(".")


def test_every_field_type_is_used() -> None:
    used = {(row.name, name) for row in EFFECT_ROWS for name in names(f"{row.args} {row.result}")}
    own = {name for name in FIELD_TYPES if "." in name}
    assert own <= {f"{kind}.{name}" for kind, name in used}
    assert {name for _, name in used} == set(FIELD_TYPES) - own
