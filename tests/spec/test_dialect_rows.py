"""Each row of the tables in `spec/dialect.md` is run, with and without the dialect."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from spec.blocks import text_of

import llc
from llc.frontend.compile import compile_text
from llc.ir.diagnostics import CompileError

CHAPTER = text_of("dialect.md")
END = "  done: {terminal: true}\n  other: {terminal: true}\n  failed: {terminal: true}\n"


def rows(heading: str) -> list[str]:
    """The first cells of the table below a heading."""
    table = CHAPTER.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [row for row in re.findall(r"^\| (\S.*?) \|", table, re.M) if row not in ("little-loops", "| llc")]


def loop(first: str, keys: str = "", states: str = "") -> str:
    return f"name: x\ninitial: a\nscope: []\n{keys}\nstates:\n  a: {{{first}}}\n{states}{END}"


# A loop, and its outcome without and with the dialect: a state, a status, the id of a diagnostic (with `!`
# for an error), or a value.
MEANING = {
    "a failing command with `next` and `on_error`": (
        loop("action: exit 1, next: done, on_error: other"),
        "done",
        "other",
    ),
    "a terminal state `failed`, `error`, `aborted`, `finalize_aborted`": (
        loop("action: ls, next: failed"),
        "success",
        "failure",
    ),
    "a failing terminal state of a loop with `maintain`": (
        loop("action: ls, next: b", "maintain: true\nmax_steps: 4", "  b: {terminal: true, failure: true}\n"),
        "failure",
        "limit",
    ),
    "a terminal state with an action": (
        loop("action: ls, next: b", states="  b: {terminal: true, action: touch ran}\n"),
        "ran",
        "not ran",
    ),
    "`failure` (`no`) without a route": (
        loop("action: exit 1, on_yes: done, on_error: other"),
        "unrouted-verdict",
        "other",
    ),
    "a state without action and evaluator": (loop("on_yes: done, on_no: other"), "!nothing-to-judge", "done"),
    "an evaluator without action and `source`": (
        loop("evaluate: {type: exit_code}, on_yes: done, on_no: other"),
        "!missing-source",
        "done",
    ),
    "`max_iterations` without `max_steps`": (
        loop("action: exit 1, next: b", "max_iterations: 3", "  b: {action: ls, next: a}\n"),
        "6 steps",
        "3 steps",
    ),
    "the same state repeatedly": (
        loop("action: exit 1, on_yes: done, on_no: a, on_error: other", "max_iterations: 20"),
        "limit",
        "other",
    ),
    "`on_handoff` absent": (loop("action: /x, next: done"), "on_handoff=end", "on_handoff=pause"),
    "`llm.timeout` absent": (loop("action: /x, next: done"), "timeout=30", "timeout=1800"),
    "an undefined variable of `context`": (
        loop("action: 'echo ${context.y}', next: done"),
        "!unknown-variable",
        "unknown-variable",
    ),
    "`agent` of a state": (loop("action: /x, agent: codex, next: done"), "agent=codex", "agent=None"),
    "an unknown key at the top level": (
        loop("action: ls, next: done", "frobnicate: 1"),
        "!unknown-key",
        "unknown-key",
    ),
    "`convergence` without `previous`": (
        loop(
            "action: echo 5, evaluate: {type: convergence, target: 0}, "
            "route: {target: done, progress: a, stall: other, _error: failed}",
            "max_steps: 5",
        ),
        "other",
        "limit",
    ),
    "`path` of `output_json` without its first dot": (
        loop(
            'action: "echo \'{\\"length\\":3}\'", evaluate: {type: output_json, path: length, target: 3}, '
            "on_yes: done, on_no: other"
        ),
        "other",
        "done",
    ),
    "`${context.input_hash}`, if it is not set": (
        loop("action: 'test \"${context.input_hash}\" = e3b0c44298fc', on_yes: done, on_no: other"),
        "!unknown-variable",
        "done",
    ),
    "`${context.readiness_threshold}`, `${context.outcome_threshold}`": (
        loop(
            "action: 'test ${context.readiness_threshold} -gt ${context.outcome_threshold}', "
            "on_yes: done, on_no: other"
        ),
        "!unknown-variable",
        "done",
    ),
    "`${context.design_tokens_context}`, `${context.design_guidance_context}`": (
        loop(
            "action: 'test -z \"${context.design_tokens_context}${context.design_guidance_context}\"', "
            "on_yes: done, on_no: other"
        ),
        "!unknown-variable",
        "done",
    ),
    "a capture that no state sets": (
        loop("action: 'echo ${captured.y.output}', next: done"),
        "!unset-capture",
        "unset-capture",
    ),
    "a value that becomes part of code": (
        loop("action: \"python3 -c 'print(${env.CODE})'\", next: done"),
        "!variable-in-code",
        "variable-in-code",
    ),
}


def outcome(text: str, expected: str) -> str:
    """Outcome of a loop, of the same kind as `wanted`."""
    try:
        compiled = compile_text(text)
    except CompileError as error:
        return "!" + next(one.id for one in error.diagnostics if one.is_error)
    assert compiled.loop is not None
    ids = {one.id for one in compiled.diagnostics}
    if expected in ids:
        return expected
    if "=" in expected:
        key = expected.partition("=")[0]
        block = {"timeout": compiled.loop.llm, "agent": compiled.loop.states["a"]}.get(key, compiled.loop)
        return f"{key}={getattr(block, key)}"
    Path("x.yaml").write_text(text)
    result = llc.run("x.yaml")
    if expected.endswith("ran"):
        return "ran" if Path("ran").exists() else "not ran"
    if expected.endswith("steps"):
        return f"{result.steps} steps"
    return str(result.final_state if expected in compiled.loop.states else result.status)


def test_no_row_is_left_out() -> None:
    assert rows("Effects of the dialect") == [*MEANING]
    assert len(rows("Spellings")) == len(WORDS)


@pytest.mark.parametrize("row", MEANING)
def test_an_effect_of_the_dialect(row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second column is the outcome without the dialect, the third with it."""
    text, ours, theirs = MEANING[row]
    for name, given, expected in (("ours", text, ours), ("theirs", f"dialect: little-loops\n{text}", theirs)):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert outcome(given, expected) == expected


# In the order of the table: a loop that ends in `done`, and another loop with the same meaning, or "".
WORDS = [
    (loop("action: ls, on_yes: done, on_no: other"), loop("action: ls, on_success: done, on_failure: other")),
    (
        loop("action: /x, next: done", "on_handoff: spawn"),
        loop("action: /x, next: done", "on_handoff: continue"),
    ),
    (loop("action: x, action_type: prompt, next: done"), loop("action: x, action_type: slash, next: done")),
    (
        loop("action: 'test -d ${context.run_dir}', on_yes: done, on_no: other"),
        loop("action: 'test -d ${loop.run_dir}', on_yes: done, on_no: other"),
    ),
    (loop("action: 'test -z ${context.input}', on_yes: done, on_no: other", "dialect: little-loops"), ""),
    (loop("action: 'test x${context.y?} = x -a ${context.y:default=1} = 1', on_yes: done, on_no: other"), ""),
    (
        loop("action: 'test ${context.v:shell} = \"a b\"', on_yes: done, on_no: other", "context: {v: a b}"),
        "",
    ),
    (
        loop("action: ls, next: done", "context: {d: src}").replace("scope: []", "scope: ['${context.d}']"),
        loop("action: ls, next: done").replace("scope: []", "scope: [src]"),
    ),
    (loop("action: ls, next: done", "size_ok: true"), loop("action: ls, next: done")),
    (loop("action: sure?, action_type: human_approval, on_yes: done, on_no: other"), ""),
    (loop("action: a/b, action_type: mcp_tool, params: {c: 1}, route: {success: done, _: other}"), ""),
    (loop("type: learning, learning: {targets: [a]}, on_yes: done, on_blocked: other"), ""),
    (loop("action: 'echo ${context.t}', next: done", "required_inputs: [t]\ncontext: {t: a}"), ""),
]


@pytest.mark.parametrize("number", range(len(WORDS)))
def test_a_spelling(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops without agents and questions run; the others are compared with an equivalent loop."""
    text, same = WORDS[number]
    monkeypatch.chdir(tmp_path)
    made = compile_text(text)
    assert made.loop is not None
    if same and "run_dir" not in same:
        other = compile_text(same)
        assert json.dumps(str(made.program.functions)) == json.dumps(str(other.program.functions))
        assert made.program.meta == other.program.meta
    kinds = {made.loop.kind_of(state) for state in made.loop.states.values() if state.acts}
    if kinds == {"shell"}:
        Path("x.yaml").write_text(text)
        assert llc.run("x.yaml").final_state == "done"
    elif number == 9:
        assert made.loop.states["a"].choices == ("yes", "no")
    elif number == 11:
        assert made.loop.states["a"].action == "/ll:explore-api a"
        assert made.loop.states["a"].routes["failure"] == "other"


def test_a_run_without_a_required_input_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(WORDS[-1][0].replace("{t: a}", "{t: ''}"))
    result = llc.run("x.yaml")
    assert result.error is not None
    assert "`t`" in result.error["message"]
