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


def found(text: str, more: str = "", route: str = "next: done") -> list[tuple[str, int]]:
    """The ids of the warnings with their lines; the compilation itself has none."""
    compiled = compile_text(text.format(more=more, route=route))
    assert compiled.loop is not None
    assert list(compiled.diagnostics) == []
    return [(item.id, item.span.line if item.span else 0) for item in advice(compiled.loop)]


@pytest.mark.parametrize("text", [LOOP, INVARIANTS])
def test_maintaining_without_a_pause(text: str) -> None:
    """`maintain_delay: 0` states that it is meant."""
    assert found(text, "maintain: true") == [("no-delay", 4)]
    for more in ("maintain: true\nmaintain_delay: 0", "maintain: true\nbackoff: 1", "maintain: false"):
        assert found(text, more) == []


def test_the_rest_of_a_route_takes_no_errors() -> None:
    """So an error ends the loop, unless something takes it or the dialect states that this is meant."""
    assert found(LOOP, route="route: {success: done, _: one}") == [("errors-not-routed", 6)]
    assert found(LOOP, "dialect: llc", "route: {success: done, _: one}") == []
    for route in ("route: {_: one, _error: done}", "route: {_: done}, on_error: done"):
        assert found(LOOP, route=route) == []
