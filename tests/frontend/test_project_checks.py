"""Checks of a loop against its project: agents and models with a price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from llc.frontend.compile import compile_text
from llc.ir.compile_options import CompileOptions
from llc.ir.diagnostics import CompileError, Diagnostic


class Project:
    """A project with two agents and one model with a price."""

    def agents(self) -> Sequence[str] | None:
        return ("claude", "codex")

    def lacking(
        self, agent: str | tuple[str, ...], needed: Sequence[str], protocol: str | None
    ) -> Mapping[str, str]:
        is_less_able = agent in ("codex", ("codex",)) or protocol == "acp"
        lacks = ("effort", "permissions: ask", "max_turns", "session: fork") if is_less_able else ()
        return {name: "`claude`" for name in needed if name in lacks}

    def is_priced(self, model: str) -> bool:
        return model == "priced"


class UnreadableProject(Project):
    """A project whose configuration cannot be read."""

    def agents(self) -> Sequence[str] | None:
        return None


LOOP = """\
name: fixing
initial: fix
{head}
states:
  fix: {{action: /fix, {state} on_success: done, on_failure: fix, on_blocked: done, on_partial: fix}}
  done: {{terminal: true}}
"""


def findings(head: str, state: str = "", project: Project | None = None) -> Sequence[Diagnostic]:
    text = LOOP.format(head=head, state=state)
    try:
        return compile_text(text, "l.yaml", CompileOptions(project=project or Project())).diagnostics
    except CompileError as error:
        return error.diagnostics


def test_a_missing_agent_is_an_error() -> None:
    """The error is at the key and suggests the nearest agent."""
    (diagnostic,) = findings("agent: codx")
    assert (diagnostic.id, diagnostic.severity, diagnostic.help) == (
        "unknown-agent",
        "error",
        "did you mean `codex`?",
    )
    assert diagnostic.span is not None
    assert (diagnostic.span.line, diagnostic.span.column) == (3, 8)


@pytest.mark.parametrize("head", ["agent: codex", "agent: claude", "agent: {program: anything}", ""])
def test_known_agents_are_accepted(head: str) -> None:
    """Agents of the project, built-in agents, and programs."""
    assert not findings(head)


@pytest.mark.parametrize(
    ("head", "state", "place", "capability"),
    [
        ("agent: codex\neffort: high", "", (4, 9), "effort"),
        ("agent: codex", "permissions: ask,", (5, 36), "permissions: ask"),
        ("permissions: ask", "agent: codex,", (3, 14), "permissions: ask"),
        ("agent: {program: codex, args: []}\neffort: high", "", (4, 9), "effort"),
        ("agent: codex\nmax_turns: 3", "", (4, 12), "max_turns"),
        ("agent: {acp: [codex]}\nsession: fork", "", (4, 10), "session: fork"),
    ],
)
def test_an_agent_that_lacks_a_capability_is_an_error(
    head: str, state: str, place: tuple[int, int], capability: str
) -> None:
    """The error is at the key that requires the capability and lists agents that have it."""
    (diagnostic,) = findings(head, state)
    assert (diagnostic.id, diagnostic.severity) == ("missing-capability", "error")
    assert diagnostic.message == f"the agent `codex` has no `{capability}`"
    assert diagnostic.help == "`claude` has it"
    assert diagnostic.span is not None
    assert (diagnostic.span.line, diagnostic.span.column) == place


def test_an_unknown_agent_of_a_state_is_an_error() -> None:
    """The error is at the key of the state."""
    (diagnostic,) = findings("", "agent: codx,")
    assert (diagnostic.id, diagnostic.help) == ("unknown-agent", "did you mean `codex`?")


def test_an_unreadable_project_gives_no_diagnostics() -> None:
    """The error of the configuration is reported elsewhere."""
    assert not findings("agent: codx", project=UnreadableProject())
    assert not compile_text(LOOP.format(head="agent: codx", state=""), "l.yaml").diagnostics


@pytest.mark.parametrize(
    ("head", "state"),
    [("budget: {usd: 5}", ""), ("", "budget: {usd: 1},"), ("budget: {usd: 5}\nllm: {model: strange}", "")],
)
def test_a_model_without_a_price_is_a_warning(head: str, state: str) -> None:
    """A cost budget needs the price of the model."""
    (diagnostic,) = findings(head, state)
    assert (diagnostic.id, diagnostic.severity) == ("unpriced-model", "warning")


@pytest.mark.parametrize(
    ("head", "state"),
    [
        ("budget: {calls: 5}", ""),
        ("budget: {usd: 5}\nllm: {model: priced}", ""),
        ("budget: {usd: 5}", "evaluate: {type: exit_code},"),
        ("", ""),
    ],
)
def test_other_loops_give_no_price_warning(head: str, state: str) -> None:
    """No warning for other units, a known price, no judging model, or no budget."""
    assert "unpriced-model" not in [diagnostic.id for diagnostic in findings(head, state)]
