"""Warnings that only `llc validate` gives."""

from __future__ import annotations

import pytest

from llc.frontend.compile import compile_text
from llc.frontend.loop.advice import advice

LOOP = """
name: a
initial: one
{more}
states:
  one: {{action: "true", {route}}}
  done: {{terminal: true}}
"""
INVARIANTS = """
name: a
paradigm: invariants
{more}
constraints:
  - {{name: a, check: "true", fix: "true"}}
"""


def warnings(text: str, more: str = "", route: str = "next: done") -> list[tuple[str, int]]:
    """Ids and lines of the advisory warnings; asserts that compilation itself gives none."""
    compiled = compile_text(text.format(more=more, route=route))
    assert compiled.loop is not None
    assert list(compiled.diagnostics) == []
    return [(item.id, item.span.line if item.span else 0) for item in advice(compiled.loop)]


@pytest.mark.parametrize("text", [LOOP, INVARIANTS])
def test_maintain_without_delay_is_a_warning(text: str) -> None:
    """`maintain_delay: 0` states that no pause is wanted."""
    assert warnings(text, "maintain: true") == [("no-delay", 4)]
    for more in ("maintain: true\nmaintain_delay: 0", "maintain: true\nbackoff: 1", "maintain: false"):
        assert warnings(text, more) == []


def test_default_route_does_not_take_errors() -> None:
    """An unrouted error ends the loop; the warning is absent if another route takes the error or the dialect
    allows it.
    """
    assert warnings(LOOP, route="route: {success: done, _: one}") == [("errors-not-routed", 6)]
    assert warnings(LOOP, "dialect: llc", "route: {success: done, _: one}") == []
    for route in ("route: {_: one, _error: done}", "route: {_: done}, on_error: done"):
        assert warnings(LOOP, route=route) == []
