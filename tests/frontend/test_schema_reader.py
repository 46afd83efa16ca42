"""From YAML trees to schema objects: accepted input, and diagnostics for the rest."""

from __future__ import annotations

import pytest

from llc.frontend.compile import compile_text
from llc.frontend.loop.evaluator_schema import Convergence, ExitCode, OutputJson
from llc.frontend.loop.paradigms import GoalSpec, LoopSpec
from llc.frontend.loop.reader import read_loop
from llc.frontend.loop.schema import Loop, StateSpec, is_slash_command
from llc.frontend.source.files import text_source
from llc.frontend.source.schema import Spec, fields_of
from llc.ir.diagnostics import CompileError, Diagnostic

HEAD = "name: x\ninitial: a\nstates:\n  a:\n"


def read(text: str) -> tuple[LoopSpec | None, list[Diagnostic]]:
    spec, _, diagnostics = read_loop(text_source(text, "t.yaml"))
    return spec, diagnostics


def state(body: str, id: str | None = None) -> StateSpec:
    """State `a` with these lines; `id` is the only expected diagnostic."""
    spec, diagnostics = read(HEAD + "".join(f"    {line}\n" for line in body.split("\n")))
    assert [finding.id for finding in diagnostics] == ([id] if id else [])
    assert isinstance(spec, Loop)
    return spec.states["a"]


def only_diagnostic(text: str) -> tuple[str, str, str | None]:
    """Id, marked text and help of the only diagnostic of a text."""
    _, diagnostics = read(text)
    (finding,) = diagnostics
    span = finding.span
    assert span is not None
    line = text.split("\n")[span.line - 1]
    end = span.end_column - 1 if span.end_line == span.line else len(line)
    return finding.id, line[span.column - 1 : end], finding.help


# --- keys -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "marked", "help"),
    [
        (HEAD + "    acton: x", "acton", "did you mean `action`?"),
        (HEAD + "    terminal: true\nmax_iteration: 3", "max_iteration", "did you mean `max_iterations`?"),
        (HEAD + "    evaluate: {type: exit_code, succes: [0]}", "succes", "did you mean `success`?"),
        (HEAD + "    terminal: true\ncapture: x", "capture", "`capture` belongs to a state"),
        (
            HEAD + "    terminal: true\nconstraints: []",
            "constraints",
            "`constraints` belongs to `paradigm: invariants`",
        ),
        (HEAD + "    backoff: 1", "backoff", "`backoff` belongs to the loop, at the top level of the file"),
        (HEAD + "    context: {}", "context", "`context` belongs to the loop, at the top level of the file"),
        (HEAD + "    prompt: x", "prompt", "write `action`, with `action_type: prompt`"),
        (HEAD + "    name: x", "name", "the key in `states` is the state's name"),
        (
            HEAD + "    terminal: true\n    append_to_messages: x",
            "append_to_messages",
            "`append_to_messages` is a key of little-loops: write `capture`, and read it as "
            "`${captured.NAME.output}`",
        ),
        (HEAD + "    <<: {}", "<<", "YAML 1.2 has no merge keys; write the keys out"),
        (HEAD + "    terminal: true\nllm: {modl: x}", "modl", "did you mean `model`?"),
        ("paradigm: goal\ngoal: x\ntools: [y]\ntool: z", "tool", "did you mean `tools`?"),
    ],
)
def test_an_unknown_key_is_marked_and_explained(text: str, marked: str, help: str) -> None:
    """The help names the nearest known key, or the block that has the key."""
    assert only_diagnostic(text) == ("unknown-key", marked, help)


def _own_keys(cls: type[Spec], *others: type[Spec]) -> list[str]:
    """The keys of a class that the others do not have."""
    return sorted(fields_of(cls).keys() - {key for other in others for key in fields_of(other)})


# `name` of a state is its key in the document.
LOOP_KEYS = [
    *(key for key in _own_keys(Loop, StateSpec) if key != "name"),
    "paradigm",
    "from",
    "flow",
    "state_defs",
    "import",
    "fragments",
]
STATE_KEYS = [key for key in _own_keys(StateSpec, Loop) if key not in ("tools", "type", "with_")]


@pytest.mark.parametrize("key", LOOP_KEYS)
def test_loop_key_in_a_state_has_a_fix(key: str) -> None:
    """The help says that the key belongs to the loop, also for `on_<verdict>` and for keys like those of
    states.
    """
    text = f"initial: a\nname: x\nstates:\n  a: {{action: x, next: z, {key}: z}}\n  z: {{terminal: true}}\n"
    with pytest.raises(CompileError) as raised:
        compile_text(text, "x.yaml")
    (finding,) = raised.value.diagnostics
    assert (finding.id, finding.help) == (
        "unknown-key",
        f"`{key}` belongs to the loop, at the top level of the file",
    )


@pytest.mark.parametrize("key", [*STATE_KEYS, "on_yes", "on_no", "on_blocked", "with", "fragment"])
@pytest.mark.parametrize("text", [HEAD + "    terminal: true\n", "paradigm: goal\ngoal: x\ntools: [y]\n"])
def test_state_key_at_the_top_level_has_a_fix(text: str, key: str) -> None:
    """The help says in every paradigm that the key belongs to a state."""
    assert only_diagnostic(f"{text}{key}: z") == ("unknown-key", key, f"`{key}` belongs to a state")


def test_all_errors_are_reported_together() -> None:
    """Diagnostics of every kind and level."""
    text = "initial: 5\nnmae: x\nscope: src\nstates:\n"
    text += "  a:\n    action: [x]\n    timeout: -1\n    evaluate: {type: nope}\n"
    _, diagnostics = read(text)
    ids = [finding.id for finding in diagnostics]
    assert sorted(ids) == sorted(
        [
            "wrong-type",
            "unknown-key",
            "wrong-type",
            "out-of-range",
            "unknown-evaluator",
            "wrong-type",
            "missing-field",
        ]
    )


def test_valid_keys_are_kept_after_an_error() -> None:
    """The block is marked as incomplete."""
    spec, diagnostics = read(HEAD + "    action: [x]\n    on_success: a\n    on_failure: a\n")
    assert [finding.id for finding in diagnostics] == ["wrong-type"]
    assert isinstance(spec, Loop)
    assert spec.states["a"].flawed
    assert spec.states["a"].on_success == "a"


@pytest.mark.parametrize("missing", ["name", "initial", "states"])
def test_a_missing_key_is_named(missing: str) -> None:
    lines = {"name": "name: x\n", "initial": "initial: a\n", "states": "states: {a: {terminal: true}}\n"}
    text = "paradigm: fsm\n" + "".join(line for key, line in lines.items() if key != missing)
    _, diagnostics = read(text)
    assert [(finding.id, finding.message) for finding in diagnostics] == [
        ("missing-field", f"a loop of paradigm `fsm` needs `{missing}`")
    ]


def test_an_empty_optional_key_is_a_warning() -> None:
    """A key without a value counts as absent."""
    assert state("terminal: true\non_maintain:", "empty-value").on_maintain is None


def test_an_empty_required_key_is_missing() -> None:
    """A required key without a value is an error."""
    assert only_diagnostic("name:\ninitial: a\nstates: {a: {terminal: true}}")[0] == "missing-field"


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "id", "marked", "help"),
    [
        ("action: true", "wrong-type", "true", 'write it in quotes: "true"'),
        ("action: 5", "wrong-type", "5", 'write it in quotes: "5"'),
        ("action: [x]", "wrong-type", "[x]", None),
        ('action: ""', "empty-text", '""', None),
        ('terminal: "true"', "wrong-type", '"true"', None),
        ("terminal: yes", "wrong-type", "yes", None),
        ("timeout: soon", "wrong-type", "soon", None),
        ('timeout: "5"', "wrong-type", '"5"', "write it without quotes"),
        ("timeout: 0", "out-of-range", "0", None),
        ("timeout: .inf", "out-of-range", ".inf", None),
        ("timeout: 1e10", "out-of-range", "1e10", None),
        ("action_type: shel", "unknown-value", "shel", "did you mean `shell`?"),
        (
            "action_type: contract",
            "unknown-value",
            "contract",
            "write a prompt that asks whether the two sides fit, and judge it by `llm_structured`",
        ),
        ("evaluate: exit_code", "wrong-type", "exit_code", "such as `{type: exit_code}`"),
        ("evaluate: {pattern: x}", "missing-field", "{pattern: x}", None),
        ("evaluate: {type: exitcode}", "unknown-evaluator", "exitcode", "did you mean `exit_code`?"),
        ("evaluate: {type: output_numeric, operator: eq}", "missing-field", "output_numeric", None),
        ("evaluate: {type: exit_code, success: [256]}", "out-of-range", "256", None),
        ("evaluate: {type: exit_code, success: 0}", "wrong-type", "0", "write `[0]`"),
        ("evaluate: {type: llm_structured, min_confidence: 2}", "out-of-range", "2", None),
        ("route: done", "wrong-type", "done", None),
        ("route: {success: 1}", "wrong-type", "1", 'write it in quotes: "1"'),
    ],
)
def test_a_wrong_value_is_marked(body: str, id: str, marked: str, help: str | None) -> None:
    """A value of the wrong type or out of range is marked, with a fix where that is clear."""
    diagnostic = only_diagnostic(HEAD + f"    {body}\n")
    assert diagnostic[:2] == (id, marked)
    assert help is None or diagnostic[2] == help


def test_a_state_without_a_body_is_explained() -> None:
    """`done:` alone is the most common mistake; the help says how a terminal state is written."""
    id, marked, help = only_diagnostic("name: x\ninitial: done\nstates:\n  done:\n")
    assert (id, marked) == ("wrong-type", "done")
    assert help == "a state that ends the loop is `{terminal: true}`"


def test_max_iterations_below_one_is_an_error() -> None:
    assert only_diagnostic(HEAD + "    terminal: true\nmax_iterations: 0")[:2] == ("out-of-range", "0")


def test_integral_floats_are_integers() -> None:
    """`max_iterations: 5.0` is five."""
    spec, diagnostics = read(HEAD + "    terminal: true\nmax_iterations: 5.0")
    assert not diagnostics
    assert isinstance(spec, Loop)
    assert repr(spec.max_iterations) == "5"


def test_targets_may_be_numbers_templates_or_quoted_numbers() -> None:
    """A number keeps its type; a quoted number is a number; a template stays text."""
    for source, expected in (("3", 3), ("1.5", 1.5), ('"4"', 4), ('"${context.t}"', "${context.t}")):
        evaluator = state(f"evaluate: {{type: convergence, target: {source}}}\nroute: {{_: a}}").evaluate
        assert isinstance(evaluator, Convergence)
        assert evaluator.target == expected


def test_output_json_compares_with_any_value() -> None:
    """The target of `output_json` may be null, a list, a mapping."""
    evaluate = state(
        "evaluate: {type: output_json, path: .a, target: {b: [null, 1]}}\nroute: {_: a}"
    ).evaluate
    assert isinstance(evaluate, OutputJson)
    assert evaluate.target == {"b": [None, 1]}
    assert evaluate.operator == "eq"


# --- shorthand --------------------------------------------------------------------------------


def test_on_yes_and_on_no_mean_success_and_failure() -> None:
    """`loops.md` 15."""
    spec = state("action: x\non_yes: a\non_no: b")
    assert (spec.on_success, spec.on_failure) == ("a", "b")
    assert spec.spans["on_success"].line == 6


def test_on_yes_with_on_success_is_an_error() -> None:
    """The two keys have the same meaning."""
    state("action: x\non_yes: a\non_success: b", "duplicate-key")


def test_on_verdict_is_a_route_entry() -> None:
    """`on_blocked: x` is `route: {blocked: x}`; other shorthand remains valid."""
    spec = state("action: /ll:x\non_success: a\non_blocked: b\non_partial: c")
    assert spec.route == {"blocked": "b", "partial": "c"}
    assert spec.routes == {"blocked": "b", "partial": "c", "success": "a"}


def test_route_overrides_on_verdict() -> None:
    """`route` takes precedence, with a warning."""
    spec = state("action: /ll:x\nroute: {blocked: a}\non_blocked: b", "shadowed-route")
    assert spec.route == {"blocked": "a"}


@pytest.mark.parametrize(
    ("body", "routes"),
    [
        ("on_success: a\non_failure: b\non_error: c", {"success": "a", "failure": "b", "_error": "c"}),
        ("route: {success: a, error: c}", {"success": "a", "_error": "c"}),
        ("route: {success: a, _: b}\non_failure: c", {"success": "a", "_": "b"}),
        ("route: {success: a}\non_success: b\non_failure: c", {"success": "a", "failure": "c"}),
        ("route: {error: a, _error: b}\non_error: c", {"_error": "b"}),
        ("next: a\non_success: b\non_error: c", {"_error": "c"}),
    ],
)
def test_routes_follow_the_resolution_order(body: str, routes: dict[str, str]) -> None:
    """`next`, then `route` with its default, then shorthand (seed, Resolution Order)."""
    assert state(f"action: x\n{body}").routes == routes


# --- paradigms --------------------------------------------------------------------------------


def test_states_make_a_loop_an_fsm() -> None:
    """`paradigm` is optional if there are states."""
    spec, diagnostics = read("name: x\ninitial: a\nstates: {a: {terminal: true}}")
    assert not diagnostics
    assert isinstance(spec, Loop)


def test_a_printed_fsm_may_name_its_source_paradigm() -> None:
    """With `states`, the key `paradigm` is only informative."""
    spec, diagnostics = read("paradigm: goal\nname: x\ninitial: a\nstates: {a: {terminal: true}}")
    assert not diagnostics
    assert isinstance(spec, Loop)
    assert spec.paradigm == "goal"


def test_a_goal_is_read() -> None:
    """Keys of the paradigm and shared settings."""
    spec, diagnostics = read("paradigm: goal\ngoal: no errors\ntools: [check, fix]\nmax_iterations: 7")
    assert not diagnostics
    assert isinstance(spec, GoalSpec)
    assert (spec.tools, spec.max_iterations, spec.name) == (("check", "fix"), 7, None)


@pytest.mark.parametrize(
    ("text", "id", "help"),
    [
        ("paradigm: gaol\ngoal: x", "unknown-paradigm", "did you mean `goal`?"),
        ("paradigm: [x]", "unknown-paradigm", None),
        ("goal: x\ntools: [y]", "missing-field", "add `paradigm: goal`"),
        ("steps: [y]", "missing-field", "add `paradigm: imperative`"),
        ("- x", "wrong-type", None),
        ("paradigm: goal\ngoal: x\ntools: []", "empty-list", None),
        ("paradigm: imperative\nname: x\nsteps: [y]\nuntil: {passes: true}", "missing-field", None),
    ],
)
def test_unknown_paradigm_is_explained(text: str, id: str, help: str | None) -> None:
    """The help names what was probably meant."""
    _, diagnostics = read(text)
    assert diagnostics[0].id == id
    assert help is None or diagnostics[0].help == help


def test_duplicate_constraint_names_are_an_error() -> None:
    """Two constraints of one name would be one state."""
    text = "paradigm: invariants\nname: x\nconstraints:\n" + "  - {name: a, check: b, fix: c}\n" * 2
    assert only_diagnostic(text)[:2] == ("duplicate-name", "a")


# --- actions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "is_slash"),
    [
        ("/ll:check_code fix", True),
        ("/help", True),
        ("  /ll:x", True),
        ("/ll:${context.what} types", True),
        ("/usr/bin/true", False),
        ("/setup.sh", False),
        ("${context.dir}/bin/x", False),
        ("pytest /ll:x", False),
        ("./run", False),
    ],
)
def test_slash_commands_and_paths_are_distinguished(action: str, is_slash: bool) -> None:
    """`loops.md` 10: a `/` followed by a command word is a slash command, a path is not."""
    assert is_slash_command(action) is is_slash


def test_slash_command_from_context_is_recognised() -> None:
    """The kind of an action follows the context value with which it starts, at any depth."""
    text = "name: x\ninitial: a\ncontext: {c: '${context.d} fix', d: '/ll:x'}\nstates:\n"
    text += (
        "  a: {action: '${context.c}', next: b}\n  b: {action: '${context.c}', action_type: shell, next: a}\n"
    )
    spec, diagnostics = read(text)
    assert not diagnostics
    assert isinstance(spec, Loop)
    assert [spec.kind_of(state) for state in spec.states.values()] == ["slash", "shell"]


def test_default_evaluator_depends_on_the_kind_of_action() -> None:
    """Shell commands by exit code, slash commands by a model, unless models are disabled."""
    text = HEAD + "    action: /ll:x\n    on_success: a\n"
    spec, _ = read(text)
    assert isinstance(spec, Loop)
    assert spec.evaluator_of(spec.states["a"]).type == "llm_structured"
    spec, _ = read(text + "llm: {enabled: false}\n")
    assert isinstance(spec, Loop)
    assert isinstance(spec.evaluator_of(spec.states["a"]), ExitCode)
