"""Errors and warnings for loops that the reader accepts, and their positions."""

from __future__ import annotations

import pytest

from llc.frontend.compile import compile_text
from llc.frontend.loop.checks import check
from llc.frontend.loop.load import loop_of
from llc.frontend.loop.paradigms import to_fsm
from llc.frontend.loop.reader import read_loop
from llc.frontend.loop.schema import Loop
from llc.frontend.source.files import text_source
from llc.ir.diagnostics import Diagnostic
from llc.ir.spans import Span

HEAD = "name: x\ninitial: a\n"
DONE = "  done: {terminal: true}\n"


def check_text(text: str) -> list[Diagnostic]:
    spec, document, diagnostics = read_loop(text_source(text, "t.yaml"))
    assert spec is not None, diagnostics
    return [*diagnostics, *check(to_fsm(spec), document)]


def states(*lines: str, head: str = HEAD) -> str:
    return head + "states:\n" + "".join(f"  {line}\n" for line in lines) + DONE


def marked(text: str, span: Span | None) -> str:
    assert span is not None
    line = text.split("\n")[span.line - 1]
    end = span.end_column - 1 if span.end_line == span.line else len(line)
    return line[span.column - 1 : end]


def only_diagnostic(text: str) -> tuple[str, str, str]:
    """Severity, id and marked text of the only diagnostic of a text."""
    (finding,) = check_text(text)
    return finding.severity, finding.id, marked(text, finding.span)


def only_help(text: str) -> str | None:
    (finding,) = check_text(text)
    return finding.help


def assert_no_diagnostics(text: str) -> None:
    assert check_text(text) == []


# --- targets and paths ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (states("a: {action: x, on_success: done, on_failure: dnoe}"), "dnoe"),
        (states("a: {action: x, on_success: done, on_failure: done, on_error: dnoe}"), "dnoe"),
        (states("a: {action: x, next: dnoe}", "b: {next: done}").replace("  b: {next: done}\n", ""), "dnoe"),
        (states("a: {action: x, route: {success: dnoe, _: done}}"), "dnoe"),
        (states("a: {action: x, next: done}", head=HEAD + "on_error: dnoe\n"), "dnoe"),
        (states("a: {next: $curent}"), "$curent"),
        (states("a: {next: '${context.to}'}", head=HEAD + "context: {to: dnoe}\n"), "'${context.to}'"),
    ],
)
def test_unknown_target_is_marked(text: str, target: str) -> None:
    """The help suggests the nearest state."""
    diagnostics = check_text(text)
    assert [(finding.id, marked(text, finding.span)) for finding in diagnostics] == [
        ("unknown-state", target)
    ]
    assert diagnostics[0].help in ("did you mean `done`?", "did you mean `$current`?")


def test_the_initial_state_must_exist() -> None:
    assert only_diagnostic("name: x\ninitial: b\nstates:\n" + DONE) == ("error", "unknown-state", "b")


def test_an_unreachable_state_is_a_warning() -> None:
    text = states("a: {next: done}", "lost: {next: done}")
    assert only_diagnostic(text) == ("warning", "unreachable-state", "lost")


def test_a_dynamic_target_reaches_every_state() -> None:
    """`loops.md` 18: a target computed at run time may be any state."""
    assert_no_diagnostics(
        states("a: {action: pick, capture: p, next: '${captured.p.output}'}", "b: {next: done}")
    )


def test_current_is_the_state_itself() -> None:
    """`$current` needs no state of that name."""
    assert_no_diagnostics(
        states("a: {action: x, route: {success: done, failure: $current, _error: $current}}")
    )


@pytest.mark.parametrize(
    "body",
    [
        "{action: x}",
        "{}",
        "{action: x, on_error: done}",
        "{action: x, capture: y}",
        "{evaluate: {type: exit_code}}",
    ],
)
def test_state_without_exit_is_an_error(body: str) -> None:
    """A state without `next`, route or `terminal` has no valid transition."""
    text = states(f"a: {body}")
    diagnostics = [finding for finding in check_text(text) if finding.is_error]
    assert [(finding.id, marked(text, finding.span)) for finding in diagnostics] == [("no-way-out", "a")]


def test_cycle_without_exit_is_a_warning() -> None:
    """A cycle from which no terminal state can be reached is reported once."""
    text = states("a: {action: x, on_success: b, on_failure: done}", "b: {next: c}", "c: {next: b}")
    assert only_diagnostic(text) == ("warning", "never-ends", "b")


# --- evaluators -------------------------------------------------------------------------------


def test_routes_without_action_or_evaluator_are_an_error() -> None:
    """A verdict comes from an action or an evaluator."""
    assert only_diagnostic(states("a: {on_success: done, on_failure: done}")) == (
        "error",
        "nothing-to-judge",
        "a",
    )


def test_a_decision_state_needs_a_source() -> None:
    """An evaluator without an action needs `source`."""
    text = states("a: {evaluate: {type: output_numeric, operator: eq, target: 0}, route: {_: done}}")
    assert only_diagnostic(text) == ("error", "missing-source", "output_numeric")


@pytest.mark.parametrize(
    ("body", "unrouted"),
    [
        ("action: x, on_success: done", "`failure`"),
        ("action: /ll:x, on_success: done, on_failure: done", "`blocked`, `partial`"),
        ("action: x, evaluate: {type: convergence, target: 0}, route: {target: done}", "`progress`, `stall`"),
        (
            "action: x, evaluate: {type: llm_structured, uncertain_suffix: true, "
            "schema: {type: object, required: [verdict], properties: {verdict: {enum: [up, down]}}}}, "
            "route: {up: done, down: done, up_uncertain: done}",
            "`down_uncertain`",
        ),
    ],
)
def test_unrouted_verdict_is_a_warning(body: str, unrouted: str) -> None:
    (finding,) = check_text(states(f"a: {{{body}}}"))
    assert (finding.severity, finding.id) == ("warning", "unrouted-verdict")
    assert finding.message == f"state `a` has no route for {unrouted}"


@pytest.mark.parametrize(
    "body",
    [
        "action: x, on_success: done, on_failure: done",
        "action: x, route: {success: done, _: done}",
        "action: /ll:x, route: {_: done}",
        "action: x, evaluate: {type: convergence, target: 0}, route: {target: done, progress: a, _: a}",
    ],
)
def test_errors_need_no_route(body: str) -> None:
    """An unrouted error ends the loop without a warning."""
    assert_no_diagnostics(states(f"a: {{{body}}}"))


def test_route_for_impossible_verdict_is_a_warning() -> None:
    text = states("a: {action: x, route: {success: done, failure: done, blocked: done}}")
    assert only_diagnostic(text) == ("warning", "unknown-verdict", "blocked")


def test_shorthand_for_impossible_verdict_is_a_warning() -> None:
    """`on_success` has no meaning for a measurement, but is a known key."""
    text = states(
        "a: {action: x, evaluate: {type: convergence, target: 0}, on_success: done, route: {_: done}}"
    )
    assert only_diagnostic(text) == ("warning", "shadowed-route", "on_success")
    route = "{target: done, progress: a, stall: done}"
    text = text.replace("{_: done}", route)
    assert only_diagnostic(text) == ("warning", "unknown-verdict", "on_success")


def test_a_misspelt_shorthand_is_an_unknown_key() -> None:
    """`on_sucess` is a misspelling, not a verdict's key."""
    text = states("a: {action: x, on_sucess: done, on_failure: done, on_success: done}")
    assert only_diagnostic(text) == ("error", "unknown-key", "on_sucess")


def test_a_schema_without_listed_verdicts_needs_a_default_route() -> None:
    """If a model may give any verdict, a `_` route is required."""
    schema = "{type: object, properties: {verdict: {type: string}}, required: [verdict]}"
    text = states(
        f"a: {{action: x, evaluate: {{type: llm_structured, schema: {schema}}}, route: {{ok: done}}}}"
    )
    assert only_diagnostic(text) == ("warning", "unrouted-verdict", "llm_structured")


def test_cannot_judge_is_a_verdict_if_routed() -> None:
    """A routed `cannot_judge` is added to the schema; otherwise the schema is the seed's."""
    body = "a: {action: x, evaluate: {type: llm_structured}, "
    routed = states(body + "on_cannot_judge: done, route: {success: done, _: done}}")
    other = states(body + "route: {success: done, _: done}}")
    assert_no_diagnostics(routed)
    assert "cannot_judge" in str(compile_text(routed).program)
    assert "cannot_judge" not in str(compile_text(other).program)
    assert (
        only_diagnostic(states("a: {action: x, route: {cannot_judge: done, _: done}}"))[1]
        == "unknown-verdict"
    )


@pytest.mark.parametrize(
    ("schema", "id"),
    [
        ("{type: string}", "bad-schema"),
        ("{type: object, properties: {result: {}}}", "bad-schema"),
        ("{type: object, properties: {verdict: {type: number}}, required: [verdict]}", "bad-schema"),
        ("{type: object, properties: {verdict: {enum: [1]}}, required: [verdict]}", "bad-schema"),
        ("{type: object, properties: {verdict: {enum: [a]}}}", "optional-verdict"),
    ],
)
def test_schema_needs_a_verdict(schema: str, id: str) -> None:
    """The answer of a model is an object with a string `verdict`."""
    text = states(
        f"a: {{action: x, evaluate: {{type: llm_structured, schema: {schema}}}, route: {{_: done}}}}"
    )
    assert only_diagnostic(text)[1] == id


def test_disabled_model_needs_an_error_route() -> None:
    """`loops.md` 11: with models disabled, an explicit `llm_structured` without `_error` is an error."""
    body = "action: x, evaluate: {type: llm_structured}"
    off = HEAD + "llm: {enabled: false}\n"
    text = states(f"a: {{{body}, route: {{_: done}}}}", head=off)
    assert only_diagnostic(text) == ("error", "llm-disabled", "llm_structured")
    assert_no_diagnostics(states(f"a: {{{body}, route: {{_: done, _error: done}}}}", head=off))
    assert_no_diagnostics(states("a: {action: /ll:x, on_success: done, on_failure: done}", head=off))


def test_no_llm_on_the_command_line_is_checked_too() -> None:
    """The option gives the same diagnostics as the setting."""
    text = states("a: {action: x, evaluate: {type: llm_structured}, route: {_: done}}")
    spec, document, _ = read_loop(text_source(text))
    assert spec is not None
    loop = to_fsm(spec)
    loop = loop.evolve(llm=loop.llm.evolve(enabled=False))
    assert [finding.id for finding in check(loop, document)] == ["llm-disabled"]


# --- expressions ------------------------------------------------------------------------------


def test_invalid_jq_expression_is_an_error() -> None:
    """jq expressions are compiled with the loop."""
    text = states("a: {action: x, evaluate: {type: output_json, path: '.a[', target: 0}, route: {_: done}}")
    assert only_diagnostic(text) == ("error", "invalid-jq", "'.a['")


@pytest.mark.parametrize("pattern", ["'(open'", "'a{2,1}'", "'(?=x)'", "'C++'"])
def test_invalid_regular_expression_is_an_error(pattern: str) -> None:
    """Patterns use RE2 syntax."""
    text = states(
        f"a: {{action: x, evaluate: {{type: output_contains, pattern: {pattern}}}, route: {{_: done}}}}"
    )
    assert only_diagnostic(text) == ("error", "invalid-regex", pattern)
    assert_no_diagnostics(text.replace("pattern:", "match: substring, pattern:"))


def test_an_expression_from_context_is_checked() -> None:
    """Context is known at compile time, so a pattern with context values can be checked."""
    evaluate = "{type: output_contains, pattern: '${context.p}'}"
    text = states(
        f"a: {{action: x, evaluate: {evaluate}, route: {{_: done}}}}", head=HEAD + "context: {p: '('}\n"
    )
    assert only_diagnostic(text)[1] == "invalid-regex"


# --- contradictions ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "id", "key"),
    [
        ("action: x, next: done, evaluate: {type: exit_code}", "contradictory-keys", "evaluate"),
        ("action: x, next: done, on_success: done", "contradictory-keys", "on_success"),
        ("action: x, next: done, route: {success: done}", "contradictory-keys", "success"),
        ("action: x, next: done, terminal: true", "contradictory-keys", "terminal"),
        ("action: x, terminal: true, on_success: done, on_failure: done", "contradictory-keys", "terminal"),
        ("action: x, terminal: true, evaluate: {type: exit_code}", "unused-key", "evaluate"),
        ("next: done, capture: y", "unused-key", "capture"),
        ("next: done, timeout: 3", "unused-key", "timeout"),
        ("next: done, status: failure", "unused-key", "status"),
        ("action: x, next: done, permissions: plan", "unused-key", "permissions"),
        ("action: x, next: done, model: m", "unused-key", "model"),
        ("action: x, next: done, allowed_tools: [Read]", "unused-key", "allowed_tools"),
        ("next: done, on_maintain: a", "unused-key", "on_maintain"),
        ("terminal: true, on_maintain: a", "unused-key", "on_maintain"),
        ("action: x, route: {success: done, _: done}, on_failure: done", "shadowed-route", "on_failure"),
        ("action: x, route: {success: done, _: done}, on_success: done", "shadowed-route", "on_success"),
        ("action: x, route: {_: done, error: done, _error: a}", "shadowed-route", "error"),
        ("action: x, route: {_: done, _error: done}, on_error: done", "shadowed-route", "on_error"),
    ],
)
def test_a_key_without_effect_is_a_warning(body: str, id: str, key: str) -> None:
    """A key that another key overrides is marked; the seed defines the precedence."""
    text = states(f"a: {{{body}}}")
    diagnostics = [finding for finding in check_text(text) if finding.id != "unreachable-state"]
    assert [(finding.severity, finding.id, marked(text, finding.span)) for finding in diagnostics] == [
        ("warning", id, key)
    ]


def test_unused_verdict_key_with_next_is_named_as_written() -> None:
    """The message names the shorthand, not the route that it stands for."""
    (diagnostic,) = check_text(states("a: {action: x, next: done, on_blocked: done}"))
    assert diagnostic.message == "`on_blocked` has no effect: `next` is taken for every result"


def test_next_allows_error_routes() -> None:
    """A state with `next` may also have an error route."""
    assert_no_diagnostics(states("a: {action: x, next: done, on_error: done}"))
    assert_no_diagnostics(states("a: {action: x, next: done, route: {_error: done}}"))


def test_maintain_delay_without_maintain_is_a_warning() -> None:
    text = states("a: {next: done}", head=HEAD + "maintain_delay: 3\n")
    assert only_diagnostic(text) == ("warning", "unused-key", "maintain_delay")


def test_on_maintain_target_is_reachable() -> None:
    """`on_maintain` counts as a transition."""
    text = HEAD + "maintain: true\nstates:\n  a: {next: end}\n  b: {next: end}\n"
    text += "  end: {terminal: true, on_maintain: b}\n"
    assert_no_diagnostics(text)
    diagnostics = check_text(text.replace("on_maintain: b", "on_maintain: c"))
    assert [(finding.id, finding.label) for finding in diagnostics] == [("unknown-state", "restarts here")]


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a/b", "../x", '"  "', '" x"', '"a\\tb"', '"\\e[31m"', "..", "x" * 201])
def test_loop_name_is_a_valid_file_name(name: str) -> None:
    """A name becomes a file and folder name, so it is printable and has no path separator."""
    text = f"name: {name}\ninitial: done\nstates:\n{DONE}"
    diagnostics = [finding for finding in _all(text) if finding.is_error]
    assert [finding.id for finding in diagnostics] in (["bad-name"], ["empty-text"])


@pytest.mark.parametrize("name", ["a/b", "$x", '"a b"', '"a\\nb"', "y" * 201])
def test_state_name_syntax(name: str) -> None:
    """`/` and `$` have a meaning in lowered names and targets."""
    text = f"name: x\ninitial: {name}\nstates:\n  {name}: {{terminal: true}}\n"
    assert "bad-name" in [finding.id for finding in check_text(text)]


def test_capture_name_syntax() -> None:
    """A capture name must fit into `${captured.<name>.output}`."""
    assert only_diagnostic(states("a: {action: x, capture: a b, next: done}")) == ("error", "bad-name", "a b")


@pytest.mark.parametrize(
    ("name", "help"), [("a b", "write `a_b`"), (" a", "write `a`"), ("a b/c", None), ("a " * 150, None)]
)
def test_the_help_for_a_state_name_with_white_space_is_a_valid_name(name: str, help: str | None) -> None:
    """No name is proposed if the name has another problem."""
    text = states(f"{name!r}: {{action: x, next: done}}").replace("initial: a\n", f"initial: {name!r}\n")
    assert [row.help for row in check_text(text) if row.id == "bad-name"] == [help]


def _all(text: str) -> list[Diagnostic]:
    spec, document, diagnostics = read_loop(text_source(text, "t.yaml"))
    return [*diagnostics, *(check(to_fsm(spec), document) if spec is not None else ())]


# --- settings ---------------------------------------------------------------------------------


def test_model_allows_only_the_default_variable() -> None:
    """`loops.md` 17: `${DEFAULT_LLM_MODEL}` is the only one."""
    text = states("a: {next: done}", head=HEAD + "llm: {model: '${context.m}'}\n")
    assert only_diagnostic(text) == ("error", "unknown-variable", "'${context.m}'")
    assert_no_diagnostics(states("a: {next: done}", head=HEAD + 'llm: {model: "${DEFAULT_LLM_MODEL}"}\n'))


def test_scope_allows_no_variables() -> None:
    """A scope is locked before any variable has a value."""
    text = states("a: {next: done}", head=HEAD + "scope: ['${env.HOME}']\n")
    assert only_diagnostic(text) == ("error", "bad-scope", "'${env.HOME}'")


# --- variables --------------------------------------------------------------------------------


def action(command: str, head: str = HEAD) -> str:
    return states(f"a: {{action: {command}, capture: v, next: b}}", "b: {action: y, next: done}", head=head)


@pytest.mark.parametrize(
    ("command", "id", "variable"),
    [
        ("echo ${contxt.x}", "unknown-namespace", "${contxt.x}"),
        ("echo ${context.x}", "unknown-variable", "${context.x}"),
        ("echo ${captured.w.output}", "unset-capture", "${captured.w.output}"),
        ("echo ${captured.v}", "unknown-field", "${captured.v}"),
        ("echo ${captured.v.outptu}", "unknown-field", "${captured.v.outptu}"),
        ("echo ${loop.names}", "unknown-field", "${loop.names}"),
        ("echo ${state.iteration.x}", "unknown-field", "${state.iteration.x}"),
        ("echo ${captured.v.session}", "unknown-field", "${captured.v.session}"),
        ("echo ${prev.handoff}", "unknown-field", "${prev.handoff}"),
        ("echo ${env.A.B}", "unknown-field", "${env.A.B}"),
        ("echo ${loop.name", "unterminated-variable", "${"),
    ],
)
def test_invalid_variable_is_marked(command: str, id: str, variable: str) -> None:
    """The marked text is the variable inside the command."""
    text = action(f'"{command}"')
    diagnostics = [finding for finding in check_text(text) if finding.is_error]
    assert [finding.id for finding in diagnostics] == [id]
    assert marked(text, diagnostics[0].span) == variable


def test_a_result_field_without_details_is_explained() -> None:
    """The help for `${result.reason}` is `${result.details.reason}`."""
    text = states(
        "a: {action: x, on_success: b, on_failure: b}", "b: {action: 'echo ${result.reason}', next: done}"
    )
    assert only_help(text) == "did you mean `${result.details.reason}`?"


@pytest.mark.parametrize(
    "command",
    [
        "echo $HOME ${HOME} ${X:-d} ${#x} ${a%b}",
        "echo ${loop.name} ${state.iteration} ${env.HOME}",
        "$${x.y}",
    ],
)
def test_shell_variables_are_accepted(command: str) -> None:
    """`loops.md` 6: shell syntax is passed through."""
    assert_no_diagnostics(action(f'"{command}"'))


def test_raw_variables_are_reported() -> None:
    """`loops.md` 7: the validator names each use."""
    text = states(
        "a: {action: x, capture: v, next: b}", "b: {action: '${raw:captured.v.output}', next: done}"
    )
    assert only_diagnostic(text) == ("warning", "raw-variable", "${raw:captured.v.output}")


def test_capture_unset_on_some_path_is_a_warning() -> None:
    """`loops.md` 6: the warning shows a path that reads the capture before it is set."""
    text = states(
        "a: {action: x, on_success: b, on_failure: c}",
        "b: {action: x, capture: v, next: c}",
        "c: {action: 'echo ${captured.v.output}', next: done}",
    )
    assert only_diagnostic(text) == ("warning", "maybe-unset", "${captured.v.output}")
    assert (only_help(text) or "").startswith("on the path a → c; ")
    assert_no_diagnostics(text.replace("output}", "output:default=none}"))


def test_capture_set_on_every_path_is_accepted() -> None:
    """Paths that join after the capture are included, also in cycles."""
    assert_no_diagnostics(
        states(
            "a: {action: x, capture: v, on_success: b, on_failure: c}",
            "b: {action: 'echo ${captured.v.exit_code}', next: c}",
            "c: {action: 'echo ${captured.v.output}', on_success: a, on_failure: done}",
        )
    )


def test_own_capture_is_set_after_the_action() -> None:
    """The evaluator of a state can read its capture; the action cannot."""
    evaluate = "{type: output_numeric, source: '${captured.v.output}', operator: eq, target: 0}"
    assert_no_diagnostics(states(f"a: {{action: x, capture: v, evaluate: {evaluate}, route: {{_: done}}}}"))
    text = states("a: {action: 'echo ${captured.v.output}', capture: v, next: done}")
    assert only_diagnostic(text)[1] == "maybe-unset"


def test_prev_and_result_in_first_state_are_warnings() -> None:
    assert only_diagnostic(states("a: {action: 'echo ${prev.output}', next: done}"))[1] == "maybe-unset"
    assert only_diagnostic(states("a: {action: 'echo ${result.verdict}', next: done}"))[1] == "maybe-unset"


def test_previous_of_a_measurement_may_be_unset() -> None:
    """`loops.md` 4: an explicit `previous` that is undefined falls back."""
    evaluate = "{type: convergence, target: 0, previous: '${prev.output}'}"
    assert_no_diagnostics(states(f"a: {{action: x, evaluate: {evaluate}, route: {{_: done}}}}"))


@pytest.mark.parametrize(
    ("context", "id"),
    [
        ("{p: '${context.q}', q: '${context.p}'}", "context-cycle"),
        ("{p: '${context.nope}'}", "unknown-variable"),
        ("{p: '${contxt.q}'}", "unknown-namespace"),
    ],
)
def test_invalid_context_value_is_reported_once(context: str, id: str) -> None:
    """The diagnostic is at the context value, not at its uses."""
    head = HEAD + f"context: {context}\n"
    text = states("a: {action: 'echo ${context.p} ${context.p}', next: done}", head=head)
    (finding,) = check_text(text)
    assert finding.id == id
    assert finding.span is not None
    assert finding.span.line == 3


# --- consequential errors ---------------------------------------------------------------------


def test_one_mistake_causes_no_further_errors() -> None:
    """A state with an unreadable key has no errors about missing keys."""
    text = states(
        "a: {action: x, on_success: [b], on_failure: c}",
        "b: {action: x, capture: [v], next: c}",
        "c: {action: 'echo ${captured.v.output}', next: done}",
    )
    spec, document, diagnostics = read_loop(text_source(text))
    assert spec is not None
    assert [finding.id for finding in diagnostics] == ["wrong-type", "wrong-type"]
    assert list(check(to_fsm(spec), document)) == []


def test_paradigm_errors_are_at_the_source_text() -> None:
    """A diagnostic of a generated state is at the text from which it was generated."""
    text = "paradigm: imperative\nname: x\nsteps:\n  - echo ${captured.v.output}\nuntil: {check: y}\n"
    assert only_diagnostic(text) == ("error", "unset-capture", "${captured.v.output}")


# --- loops of little-loops --------------------------------------------------------------------


@pytest.mark.parametrize("type", ["prompts", "approval", "contract"])
def test_action_of_unknown_type_is_not_parsed_as_shell(type: str) -> None:
    """The unknown type is the only error."""
    text = "it's `odd ${prev.output} $(and (unclosed ${captured.y.output}"
    lines = (f'a: {{action: "{text}", action_type: {type}, capture: y, on_success: done, on_failure: a}}',)
    assert only_diagnostic(states(*lines))[1:] == ("unknown-value", type)


def test_on_retry_exhausted_needs_max_retries() -> None:
    """`on_retry_exhausted` is used only with `max_retries`."""
    text = states("a: {action: x, on_success: done, on_failure: a, on_retry_exhausted: done}")
    assert only_diagnostic(text) == ("warning", "unused-key", "on_retry_exhausted")
    assert_no_diagnostics(text.replace("on_retry_exhausted", "max_retries: 2, on_retry_exhausted"))
    text = states("a: {action: x, on_success: done, on_failure: a, max_retries: 2}")
    assert only_diagnostic(text) == ("error", "missing-field", "max_retries")


FAILING = states("a: {action: x, next: done, on_error: b}", "b: {action: y, next: done}")
FAILED = states("a: {action: x, on_success: done, on_failure: failed}", "failed: {terminal: true}")


@pytest.mark.parametrize(("text", "place"), [(FAILING, "on_error"), (FAILED, "failed")])
def test_silent_failure_is_a_warning(text: str, place: str) -> None:
    """`next` that ignores failures, and a terminal state `failed` with success; a dialect states what is
    meant.
    """
    assert only_diagnostic(text) == ("warning", "silent-failure", place)
    assert_no_diagnostics(text.replace(HEAD, HEAD + "dialect: llc\n"))
    assert_no_diagnostics(text.replace(HEAD, HEAD + "dialect: little-loops\n"))


def test_explicit_status_of_terminal_gives_no_warning() -> None:
    """With a status, the name of the state has no meaning."""
    for status in ("success", "failure"):
        assert_no_diagnostics(FAILED.replace("failed: {", f"failed: {{status: {status}, "))


def test_dialect_defines_failure_routing() -> None:
    """In little-loops `on_error` takes the failure of a command before `next`, and names mark failures."""

    def loop(text: str) -> Loop:
        spec, document, _ = read_loop(text_source(text.replace(HEAD, HEAD + "dialect: little-loops\n")))
        assert spec is not None
        result, _ = loop_of(spec, document)
        assert result is not None
        return result

    assert loop(FAILING).states["a"].routes == {"success": "done", "failure": "b", "_error": "b"}
    assert loop(FAILED).states["failed"].status == "failure"


def test_yes_and_no_are_success_and_failure() -> None:
    """In routes as in `on_yes`; a schema with these words makes them separate verdicts."""
    assert_no_diagnostics(states("a: {action: x, route: {yes: done, no: a}}"))
    verdict = "{type: string, enum: [yes, no]}"
    schema = f"{{type: object, properties: {{verdict: {verdict}}}, required: [verdict]}}"
    judge = f"evaluate: {{type: llm_structured, schema: {schema}}}"
    assert_no_diagnostics(states(f"a: {{action: x, {judge}, on_yes: done, on_no: a}}"))
    assert_no_diagnostics(states(f"a: {{action: x, {judge}, route: {{yes: done, no: a}}}}"))
