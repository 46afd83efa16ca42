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
    """State `a` with these lines; `id` is the only finding there should be."""
    spec, diagnostics = read(HEAD + "".join(f"    {line}\n" for line in body.split("\n")))
    assert [finding.id for finding in diagnostics] == ([id] if id else [])
    assert isinstance(spec, Loop)
    return spec.states["a"]


def only(text: str) -> tuple[str, str, str | None]:
    """The single finding about a text: its id, what it marks, its help."""
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
    """An unknown key of any block is an error with the nearest known one, or where it belongs."""
    assert only(text) == ("unknown-key", marked, help)


def _own(cls: type[Spec], *others: type[Spec]) -> list[str]:
    """The keys that a class has, and the others do not."""
    return sorted(fields_of(cls).keys() - {key for other in others for key in fields_of(other)})


# A state's name is its key.
OF_LOOPS = [
    *(key for key in _own(Loop, StateSpec) if key != "name"),
    "paradigm",
    "from",
    "flow",
    "state_defs",
    "import",
    "fragments",
]
OF_STATES = [key for key in _own(StateSpec, Loop) if key not in ("tools", "type", "with_")]


@pytest.mark.parametrize("key", OF_LOOPS)
def test_a_key_of_a_loop_in_a_state_belongs_to_the_loop(key: str) -> None:
    """Also where it looks like `on_<verdict>`, and where a key of states is similar."""
    text = f"initial: a\nname: x\nstates:\n  a: {{action: x, next: z, {key}: z}}\n  z: {{terminal: true}}\n"
    with pytest.raises(CompileError) as raised:
        compile_text(text, "x.yaml")
    (finding,) = raised.value.diagnostics
    assert (finding.id, finding.help) == (
        "unknown-key",
        f"`{key}` belongs to the loop, at the top level of the file",
    )


@pytest.mark.parametrize("key", [*OF_STATES, "on_yes", "on_no", "on_blocked", "with", "fragment"])
@pytest.mark.parametrize("text", [HEAD + "    terminal: true\n", "paradigm: goal\ngoal: x\ntools: [y]\n"])
def test_a_key_of_a_state_at_the_top_level_belongs_to_a_state(text: str, key: str) -> None:
    """In every paradigm."""
    assert only(f"{text}{key}: z") == ("unknown-key", key, f"`{key}` belongs to a state")


def test_everything_is_reported_in_one_go() -> None:
    """Findings of every kind and level come out together."""
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


def test_what_could_be_read_is_kept() -> None:
    """A mistake in one key leaves the others usable, and the block says that something is missing."""
    spec, diagnostics = read(HEAD + "    action: [x]\n    on_success: a\n    on_failure: a\n")
    assert [finding.id for finding in diagnostics] == ["wrong-type"]
    assert isinstance(spec, Loop)
    assert spec.states["a"].flawed
    assert spec.states["a"].on_success == "a"


@pytest.mark.parametrize("missing", ["name", "initial", "states"])
def test_a_missing_key_is_named(missing: str) -> None:
    """A loop without a key it needs says which."""
    lines = {"name": "name: x\n", "initial": "initial: a\n", "states": "states: {a: {terminal: true}}\n"}
    text = "paradigm: fsm\n" + "".join(line for key, line in lines.items() if key != missing)
    _, diagnostics = read(text)
    assert [(finding.id, finding.message) for finding in diagnostics] == [
        ("missing-field", f"a loop of paradigm `fsm` needs `{missing}`")
    ]


def test_an_empty_optional_key_is_a_warning() -> None:
    """A key without a value counts as absent, and that is said."""
    assert state("terminal: true\non_maintain:", "empty-value").on_maintain is None


def test_an_empty_required_key_is_missing() -> None:
    """A required key without a value is an error."""
    assert only("name:\ninitial: a\nstates: {a: {terminal: true}}")[0] == "missing-field"


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
    """A value of the wrong type or outside its bounds is marked, with what to write where that is clear."""
    found = only(HEAD + f"    {body}\n")
    assert found[:2] == (id, marked)
    assert help is None or found[2] == help


def test_a_state_without_a_body_is_explained() -> None:
    """`done:` alone is the commonest slip, and its finding says what ends a loop."""
    id, marked, help = only("name: x\ninitial: done\nstates:\n  done:\n")
    assert (id, marked) == ("wrong-type", "done")
    assert help == "a state that ends the loop is `{terminal: true}`"


def test_max_iterations_below_one_is_refused() -> None:
    """A limit of nothing is no limit."""
    assert only(HEAD + "    terminal: true\nmax_iterations: 0")[:2] == ("out-of-range", "0")


def test_whole_floats_count_as_integers() -> None:
    """`max_iterations: 5.0` is five."""
    spec, found = read(HEAD + "    terminal: true\nmax_iterations: 5.0")
    assert not found
    assert isinstance(spec, Loop)
    assert repr(spec.max_iterations) == "5"


def test_targets_may_be_numbers_templates_or_quoted_numbers() -> None:
    """A measure keeps its number; a quoted number is one; a template stays text."""
    for written, meant in (("3", 3), ("1.5", 1.5), ('"4"', 4), ('"${context.t}"', "${context.t}")):
        found = state(f"evaluate: {{type: convergence, target: {written}}}\nroute: {{_: a}}").evaluate
        assert isinstance(found, Convergence)
        assert found.target == meant


def test_output_json_compares_with_any_value() -> None:
    """The target of `output_json` may be null, a list, a mapping."""
    evaluate = state(
        "evaluate: {type: output_json, path: .a, target: {b: [null, 1]}}\nroute: {_: a}"
    ).evaluate
    assert isinstance(evaluate, OutputJson)
    assert evaluate.target == {"b": [None, 1]}
    assert evaluate.operator == "eq"


# --- words for the same -----------------------------------------------------------------------


def test_on_yes_and_on_no_mean_success_and_failure() -> None:
    """`loops.md` 15."""
    found = state("action: x\non_yes: a\non_no: b")
    assert (found.on_success, found.on_failure) == ("a", "b")
    assert found.spans["on_success"].line == 6


def test_on_yes_beside_on_success_is_refused() -> None:
    """Two words for the same are a duplicate."""
    state("action: x\non_yes: a\non_success: b", "duplicate-key")


def test_on_verdict_is_a_route_entry() -> None:
    """`on_blocked: x` is `route: {blocked: x}`, and shorthand beside it still counts."""
    found = state("action: /ll:x\non_success: a\non_blocked: b\non_partial: c")
    assert found.route == {"blocked": "b", "partial": "c"}
    assert found.routes == {"blocked": "b", "partial": "c", "success": "a"}


def test_route_overrides_on_verdict() -> None:
    """The table wins over the sugar, and says so."""
    found = state("action: /ll:x\nroute: {blocked: a}\non_blocked: b", "shadowed-route")
    assert found.route == {"blocked": "a"}


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
    """`paradigm` may be left out where there are states."""
    spec, found = read("name: x\ninitial: a\nstates: {a: {terminal: true}}")
    assert not found
    assert isinstance(spec, Loop)


def test_a_printed_fsm_may_name_its_source_paradigm() -> None:
    """The universal schema's `paradigm` is for reference: states decide."""
    spec, found = read("paradigm: goal\nname: x\ninitial: a\nstates: {a: {terminal: true}}")
    assert not found
    assert isinstance(spec, Loop)
    assert spec.paradigm == "goal"


def test_a_goal_is_read() -> None:
    """A paradigm's own keys and the shared settings."""
    spec, found = read("paradigm: goal\ngoal: no errors\ntools: [check, fix]\nmax_iterations: 7")
    assert not found
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
def test_a_loop_in_no_paradigm_is_explained(text: str, id: str, help: str | None) -> None:
    """What is not one of the five says what was probably meant."""
    _, diagnostics = read(text)
    assert diagnostics[0].id == id
    assert help is None or diagnostics[0].help == help


def test_constraints_have_names_of_their_own() -> None:
    """Two constraints of one name would be one state."""
    text = "paradigm: invariants\nname: x\nconstraints:\n" + "  - {name: a, check: b, fix: c}\n" * 2
    assert only(text)[:2] == ("duplicate-name", "a")


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
def test_slash_commands_are_told_from_paths(action: str, is_slash: bool) -> None:
    """`loops.md` 10: a `/` followed by a command word is a slash command, a path is not."""
    assert is_slash_command(action) is is_slash


def test_a_slash_command_in_context_is_one() -> None:
    """What kind an action is follows the context it begins with, however deep."""
    text = "name: x\ninitial: a\ncontext: {c: '${context.d} fix', d: '/ll:x'}\nstates:\n"
    text += (
        "  a: {action: '${context.c}', next: b}\n  b: {action: '${context.c}', action_type: shell, next: a}\n"
    )
    spec, found = read(text)
    assert not found
    assert isinstance(spec, Loop)
    assert [spec.kind_of(state) for state in spec.states.values()] == ["slash", "shell"]


def test_the_default_evaluator_is_by_kind_of_action() -> None:
    """Shell commands by exit code, slash commands by a model, unless models are off."""
    text = HEAD + "    action: /ll:x\n    on_success: a\n"
    spec, _ = read(text)
    assert isinstance(spec, Loop)
    assert spec.evaluator_of(spec.states["a"]).type == "llm_structured"
    spec, _ = read(text + "llm: {enabled: false}\n")
    assert isinstance(spec, Loop)
    assert isinstance(spec.evaluator_of(spec.states["a"]), ExitCode)
