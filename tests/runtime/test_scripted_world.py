"""Scripted worlds: choice of rules, results and times; only the script advances the clock."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import tried

from llc.frontend.source.files import text_source
from llc.frontend.source.schema import fields_of
from llc.ir.diagnostics import CompileError
from llc.ir.effects import EFFECTS, EffectKind
from llc.runtime.effects.script_reader import ResultSpec, RuleSpec, load_world, read_world
from llc.runtime.effects.scripted_world import _RESULT_BUILDERS, NoRule
from llc.runtime.host.effect_context import Context, Exited, Interrupt, Interrupted


@pytest.fixture
def scripted(context: Callable[..., Context], effect: Any) -> Callable[..., Any]:
    """Factory `scripted(yaml)` of functions that perform an effect: `ask("shell", command="x",
    state="s")`.
    """

    def make(text: str) -> Any:
        world = read_world(text_source(textwrap.dedent(text), "world.yaml"))

        def ask(kind: str, state: str | None = "check", **args: Any) -> dict[str, Any]:
            defaults = {"command": "make test"} if kind in ("shell", "agent") else {}
            at = context(state=state, elapsed_ms=lambda: round(world.monotonic() * 1000))
            return world.perform(effect(kind, **{**defaults, **args}), at)

        ask.world = world  # type: ignore[attr-defined]
        return ask

    return make


def problems(text: str) -> list[tuple[str, int]]:
    """The id and line of each diagnostic of a script."""
    with pytest.raises(CompileError) as caught:
        read_world(text_source(textwrap.dedent(text), "world.yaml"))
    return [(item.id, item.span.line if item.span else 0) for item in caught.value.diagnostics]


# --- choice of rules----------------------------------------------------------------------------


def test_the_first_matching_rule_applies(scripted: Any) -> None:
    """Rules are tried in the order of the file."""
    ask = scripted("- {state: check, output: one}\n- {state: check, output: two}\n")
    assert ask("shell")["output"] == "one"
    assert ask("shell")["output"] == "one"


def test_a_rule_matches_by_state(scripted: Any) -> None:
    """`state` is the state that requests the effect."""
    ask = scripted("- {state: fix, output: fixed}\n- {state: check, output: checked}\n")
    assert ask("shell", state="check")["output"] == "checked"
    assert ask("shell", state="fix")["output"] == "fixed"


def test_a_rule_matches_by_kind(scripted: Any) -> None:
    ask = scripted("- {kind: agent, output: a}\n- {kind: shell, output: s}\n")
    assert ask("shell")["output"] == "s"
    assert ask("agent")["output"] == "a"


def test_a_rule_matches_by_a_regular_expression_in_the_command(scripted: Any) -> None:
    """The expression of `command` is searched, not anchored."""
    ask = scripted("- {command: 'mypy (src|lib)', exit_code: 1}\n- {command: .}\n")
    assert ask("shell", command="cd x && mypy src/")["exit_code"] == 1
    assert ask("shell", command="mypy tests/")["exit_code"] == 0


def test_times_limits_how_often_a_rule_applies(scripted: Any) -> None:
    """Afterwards the next matching rule applies."""
    ask = scripted("- {times: 2, exit_code: 1}\n- {exit_code: 0}\n")
    assert [ask("shell")["exit_code"] for _ in range(4)] == [1, 1, 0, 0]


def test_results_are_used_in_order(scripted: Any) -> None:
    """After the last of `results` the rule is used up."""
    ask = scripted("- results: [{exit_code: 1, output: bad}, {exit_code: 0}]\n- {exit_code: 7}\n")
    assert [ask("shell")["exit_code"] for _ in range(3)] == [1, 0, 7]


def test_fields_of_a_rule_are_defaults_of_its_results(scripted: Any) -> None:
    ask = scripted("- {duration_ms: 5, results: [{exit_code: 1}, {duration_ms: 9}]}\n")
    assert [ask("shell")["duration_ms"] for _ in range(2)] == [5, 9]


def test_a_rule_with_a_verdict_does_not_match_an_action(scripted: Any) -> None:
    """A rule without `kind` matches the kinds whose results have its fields."""
    ask = scripted("- {state: fix, verdict: success}\n- {state: fix, output: done}\n")
    assert ask("agent", state="fix")["output"] == "done"
    assert ask("evaluate", state="fix")["reply"]["verdict"] == "success"


# --- results ------------------------------------------------------------------------------------


def test_an_action_succeeds_by_default(scripted: Any) -> None:
    """An empty result is exit code 0, no output and no duration."""
    assert scripted("- state: check\n")("shell") == {
        "output": "",
        "stderr": "",
        "exit_code": 0,
        "duration_ms": 0,
        "elapsed_ms": 0,
    }


def test_result_and_fields_of_the_rule_are_merged(scripted: Any) -> None:
    """`result:` and the same keys in the rule itself may be mixed."""
    result = scripted("- {output: a, result: {exit_code: 3, stderr: b}}\n")("shell")
    assert (result["output"], result["exit_code"], result["stderr"]) == ("a", 3, "b")


def test_a_number_as_output_is_text(scripted: Any) -> None:
    assert scripted("- output: 4\n")("shell")["output"] == "4"


def test_a_verdict_is_short_for_a_reply(scripted: Any) -> None:
    """`verdict`, `confidence` and `reason` make a reply of the default schema."""
    ask = scripted("- {verdict: blocked, reason: no key}\n")
    assert ask("evaluate")["reply"] == {"verdict": "blocked", "confidence": 1.0, "reason": "no key"}


def test_an_error_is_a_word_or_a_map(scripted: Any) -> None:
    """`error: rate-limited` is short for the map of kind and message."""
    ask = scripted("- {kind: evaluate, error: rate-limited}\n- {error: {kind: not-found, message: gone}}\n")
    assert ask("evaluate")["error"] == {"kind": "rate-limited", "message": "rate-limited"}
    result = ask("shell")
    assert (result["exit_code"], result["error"]["message"]) == (127, "gone")


def test_a_signal_sets_the_exit_code(scripted: Any) -> None:
    """The exit code is 128 plus the number of the signal, as for a real process."""
    assert scripted("- signal: SIGKILL\n")("shell")["exit_code"] == 137


def test_jq_runs_without_a_rule(scripted: Any) -> None:
    """jq has no side effects and runs for real, unless a rule matches."""
    ask = scripted("- {kind: jq, value: 7, times: 1}\n")
    try:
        assert ask("jq", program=".a", input='{"a": 1}') == {"value": 7}
        assert ask("jq", program=".a", input='{"a": 1}') == {"value": 1}
    finally:
        ask.world.close()


def test_output_is_shown_live(context: Callable[..., Context], effect: Any) -> None:
    """The display receives the output of a scripted action as that of a real one."""
    world = read_world(text_source("- {output: hello, stderr: oops}\n"))
    seen: list[tuple[str, str]] = []
    world.perform(effect("shell", command="x"), context(on_output=lambda *part: seen.append(part)))
    assert seen == [("output", "hello"), ("stderr", "oops")]


# --- time and environment -----------------------------------------------------------------------


def test_the_script_sets_the_start_of_the_clock(scripted: Any) -> None:
    """`clock:` is a time; the default is the day of the seed's examples."""
    ask = scripted("clock: 2030-05-06T07:08:09Z\n")
    assert ask("clock") == {"time": "2030-05-06T07:08:09.000Z", "elapsed_ms": 0}
    assert scripted("{}")("clock")["time"] == "2024-01-15T10:30:00.000Z"


def test_only_results_and_sleeps_advance_the_clock(scripted: Any) -> None:
    """The clock advances by `duration_ms` and by the seconds of sleeps."""
    ask = scripted("- duration_ms: 1500\n")
    assert ask("shell")["elapsed_ms"] == 1500
    assert ask("sleep", seconds=2)["elapsed_ms"] == 3500
    assert ask("clock") == {"time": "2024-01-15T10:30:03.500Z", "elapsed_ms": 3500}


def test_an_action_longer_than_its_timeout_is_timed_out(scripted: Any) -> None:
    """The scripted duration is compared with `timeout_s`."""
    result = scripted("- {duration_ms: 9000, output: late}\n")("shell", timeout_s=5)
    assert result["timed_out"] == "action"
    assert (result["exit_code"], result["signal"], result["elapsed_ms"]) == (143, "SIGTERM", 5000)
    assert result["output"] == ""


def test_an_action_beyond_the_loops_deadline_is_timed_out_by_the_loop(scripted: Any) -> None:
    """The earlier of the two limits applies and is named."""
    ask = scripted("- duration_ms: 9000\n")
    assert ask("shell", timeout_s=8, deadline_ms=5000)["timed_out"] == "loop"
    assert ask("shell", deadline_ms=5000)["exit_code"] == 124
    assert ask("evaluate", deadline_ms=5000)["error"]["kind"] == "timeout"


def test_the_loops_deadline_ends_a_sleep(scripted: Any) -> None:
    assert scripted("{}")("sleep", seconds=60, deadline_ms=1000) == {"elapsed_ms": 1000, "timed_out": "loop"}


def test_the_environment_is_that_of_the_script(scripted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the real environment are not visible."""
    monkeypatch.setenv("LLC_TEST", "real")
    ask = scripted("env: {TOKEN: abc, PORT: 80}\n")
    values = {"TOKEN": "abc", "PORT": "80", "LLC_TEST": None}
    assert ask("env", names=["TOKEN", "PORT", "LLC_TEST"]) == {"values": values}


def test_a_recorded_effect_uses_up_its_rule(scripted: Any, effect: Any) -> None:
    """A resumed run with the same script continues at the right rule and time."""
    ask = scripted("- results: [{exit_code: 1, duration_ms: 40}, {exit_code: 5}]\n")
    ask.world.observe(effect("shell", command="make"), {"exit_code": 1, "duration_ms": 40}, "check")
    assert (ask.world.monotonic(), ask("shell")["exit_code"]) == (0.04, 5)


# --- no rule ------------------------------------------------------------------------------------


def test_an_effect_without_a_rule_is_an_error(scripted: Any) -> None:
    """The message has kind, state and command, and the nearest rule with what it requires."""
    ask = scripted("- {state: fix, command: ruff}\n- {state: check, command: mypy}\n")
    with pytest.raises(NoRule) as caught:
        ask("shell", command="pytest -q")
    assert str(caught.value) == (
        "no rule answers `shell` in state `check` (command `pytest -q`); "
        "the nearest rule, world.yaml:2, wants a command with `mypy`"
    )


def test_a_used_up_rule_is_reported(scripted: Any) -> None:
    ask = scripted("- times: 1\n")
    ask("shell")
    with pytest.raises(NoRule, match="has answered 1 time and is used up"):
        ask("shell")


def test_a_script_without_rules_is_reported(scripted: Any) -> None:
    with pytest.raises(NoRule, match="the script has no rules"):
        scripted("{}")("evaluate", prompt="p")


def test_an_interrupt_ends_a_scripted_run(scripted: Any, interrupt: Interrupt) -> None:
    ask = scripted("- state: check\n")
    interrupt.set()
    with pytest.raises(Interrupted):
        ask("shell")


# --- the file -----------------------------------------------------------------------------------


def test_a_script_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "world.yaml"
    path.write_text("rules:\n  - state: check\n")
    assert [rule.line for rule in load_world(str(path)).rules] == [2]


def test_a_missing_script_is_a_diagnostic(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="file-not-found"):
        load_world(str(tmp_path / "none.yaml"))


def test_all_problems_of_a_script_are_reported_with_their_lines() -> None:
    """One error lists all unknown keys, wrong types and impossible combinations."""
    text = """\
    clok: 1
    clock: soon
    env: [A]
    rules:
      - {stat: check}
      - {kind: asks}
      - {times: 0}
      - {exit_code: 256}
      - {exit_code: true}
      - {command: "("}
      - {verdict: ok, exit_code: 1}
      - {kind: shell, verdict: ok}
      - {results: []}
      - {results: [{exit_code: 1}], times: 2}
      - {result: 3}
      - five
      - {timed_out: yesterday}
      - {duration_ms: .inf}
      - {error: 4}
      - {reply: text}
      - {signal: SIGNOTHING}
    """
    assert problems(text) == [
        ("unknown-key", 1),
        ("wrong-type", 2),
        ("wrong-type", 3),
        ("unknown-key", 5),
        ("unknown-kind", 6),
        ("out-of-range", 7),
        ("out-of-range", 8),
        ("wrong-type", 9),
        ("invalid-regex", 10),
        ("contradictory-keys", 11),
        ("unknown-key", 12),
        ("empty-list", 13),
        ("contradictory-keys", 14),
        ("wrong-type", 15),
        ("wrong-type", 16),
        ("unknown-value", 17),
        ("out-of-range", 18),
        ("wrong-type", 19),
        ("wrong-type", 20),
        ("wrong-type", 21),
    ]


def test_a_misspelt_key_gets_a_suggestion() -> None:
    with pytest.raises(CompileError, match="did you mean `state`"):
        read_world(text_source("- {stat: check}\n"))


@pytest.mark.parametrize("text", ["5", "rules: 5", "- [", "a: 1\na: 2"])
def test_a_malformed_script_is_a_diagnostic(text: str) -> None:
    assert problems(text)


def test_the_fields_of_a_result_are_those_of_the_effect_table() -> None:
    """The schema has exactly the fields that a rule may set for some kind."""
    listed = {name for row in EFFECTS.values() for name in row.scripted.split()}
    assert listed == set(fields_of(ResultSpec))


NAMES = st.sampled_from([*fields_of(RuleSpec), "rules", "env", "clock", "x"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | NAMES
SCRIPTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, max_examples=tried(100))
@given(SCRIPTS)
def test_any_data_is_a_script_or_a_diagnostic(data: Any) -> None:
    """Neither reading nor performing raises another exception than `NoRule`."""
    try:
        world = read_world(text_source(yaml.safe_dump(data, allow_unicode=True)))
    except CompileError:
        return
    interrupt = Interrupt()
    at = Context(
        run_id="r", effect_id="r/1", loop=None, state="check", iteration=1,
        elapsed_ms=lambda: 0, interrupt=interrupt,
    )  # fmt: skip
    for kind in ("shell", "agent", "evaluate"):
        with suppress(NoRule):
            assert "elapsed_ms" in world.perform(ActionEffect(kind), at)
    interrupt.close()


class ActionEffect:
    """An effect with the arguments of an action."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.args = {"command": "make", "timeout_s": 5}


@pytest.mark.parametrize("row", EFFECTS.values(), ids=lambda row: row.name)
def test_every_kind_has_a_scripted_result(row: EffectKind, scripted: Any) -> None:
    """A kind that rules answer has a result builder; the world performs the others itself."""
    if row.scripted:
        assert row.is_action or row.name in _RESULT_BUILDERS or row.name == "jq"
        return
    with suppress(Exited):
        assert isinstance(
            scripted("[]")(row.name, names=["HOME"], seconds=0, reason="", code=3, name="x", linked=["x"]),
            dict,
        )
