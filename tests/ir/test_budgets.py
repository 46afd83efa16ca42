"""Budgets of calls and seconds, per program and per state: accepted and rejected programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from llc.ir.text import parse_program, print_program
from llc.ir.verify import verify
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.code.lift import lift

GOLDEN = Path(__file__).parents[1] / "golden" / "rules" / "14-budget-of-a-state" / "ir.txt"
TEXT = GOLDEN.read_text("utf-8")


def error_ids(text: str) -> set[str]:
    return {item.id for item in verify(parse_program(text, "x.ir")) if item.is_error}


def test_compiled_program_is_accepted() -> None:
    """All of its bounds are proved."""
    assert '"state_budgets": {"fix": {"tokens": 100, "calls": 2}}' in TEXT
    assert error_ids(TEXT) == set()


@pytest.mark.parametrize(
    ("old", "new", "id"),
    [
        ("branch ge(spent.calls, 6) /budget", "branch ge(spent.calls, 7) /budget", "unbounded-budget"),
        ("    spent.calls = add(spent.calls, 1)\n", "", "unbounded-budget"),
        ("spent.calls = add(spent.calls, 1)", "spent.calls = add(spent.calls, 0)", "counter-set"),
        (
            "    spent.seconds = add(spent.seconds, div(",
            "    last = add(spent.seconds, div(",
            "unbounded-budget",
        ),
        ("branch ge(spent.calls.fix, 2) /budget", "branch ge(spent.calls, 2) /budget", "unbounded-budget"),
        ("    spent.calls.fix = add(spent.calls.fix, 1)\n", "", "unbounded-budget"),
        ("spent.tokens.fix = add(", "spent.tokens.fix = min(", "counter-set"),
        ('"calls": 2}', '"calls": 3}', "unbounded-budget"),
        ('"calls": 2}', '"calls": 2.5}', "bad-meta"),
        ('"calls": 2}', '"euros": 2}', "bad-meta"),
        ('"budget_calls": 6', '"budget_calls": -6', "bad-meta"),
        ('{"fix": {"tokens": 100, "calls": 2}}', "3", "bad-meta"),
    ],
)
def test_bypassed_budget_is_an_error(old: str, new: str, id: str) -> None:
    """Each part of the bookkeeping is needed."""
    assert old in TEXT
    assert id in error_ids(TEXT.replace(old, new))


def test_budget_of_a_state_ignores_other_states() -> None:
    """A budget of a state bounds only the calls of that state."""
    text = TEXT.replace('"state_budgets": {"fix":', '"state_budgets": {"done": {"usd": 0}, "fix":')
    assert error_ids(text) == set()


def test_budgets_round_trip_through_text_and_image() -> None:
    """An image without budgets has no budget fields."""
    program = parse_program(TEXT, "x.ir")
    assert parse_program(print_program(program), "x.ir") == program
    image = Image.from_bytes(emit(program).to_bytes())
    assert image.meta["limits"]["state_budgets"] == {"fix": {"tokens": 100, "calls": 2}}
    assert lift(image).meta.limits == program.meta.limits
    plain = parse_program("program p entry main\nfunction main() state s return 1", "x.ir")
    assert "budget_calls" not in emit(plain).meta["limits"]
