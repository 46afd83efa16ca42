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
    spec, document, found = read_loop(text_source(text, "t.yaml"))
    assert spec is not None, found
    return [*found, *check(to_fsm(spec), document)]


def states(*lines: str, head: str = HEAD) -> str:
    return head + "states:\n" + "".join(f"  {line}\n" for line in lines) + DONE


def marked(text: str, span: Span | None) -> str:
    assert span is not None
    line = text.split("\n")[span.line - 1]
    end = span.end_column - 1 if span.end_line == span.line else len(line)
    return line[span.column - 1 : end]


def only(text: str) -> tuple[str, str, str]:
    """The single finding about a text: severity, id, what it marks."""
    (finding,) = check_text(text)
    return finding.severity, finding.id, marked(text, finding.span)


def helped(text: str) -> str | None:
    (finding,) = check_text(text)
    return finding.help


def sound(text: str) -> None:
    assert check_text(text) == []


# --- targets and ways -------------------------------------------------------------------------


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
def test_a_dangling_target_is_marked(text: str, target: str) -> None:
    """A target that is no state is an error at the target, with the nearest state."""
    diagnostics = check_text(text)
    assert [(finding.id, marked(text, finding.span)) for finding in diagnostics] == [
        ("unknown-state", target)
    ]
    assert diagnostics[0].help in ("did you mean `done`?", "did you mean `$current`?")


def test_the_initial_state_must_exist() -> None:
    """`initial` is checked like any target."""
    assert only("name: x\ninitial: b\nstates:\n" + DONE) == ("error", "unknown-state", "b")


def test_an_unreachable_state_is_a_warning() -> None:
    """A state that nothing leads to is named."""
    text = states("a: {next: done}", "lost: {next: done}")
    assert only(text) == ("warning", "unreachable-state", "lost")


def test_a_dynamic_target_reaches_every_state() -> None:
    """`loops.md` 18: a target worked out at run time may be any state."""
    sound(states("a: {action: pick, capture: p, next: '${captured.p.output}'}", "b: {next: done}"))


def test_current_is_the_state_itself() -> None:
    """`$current` needs no state of that name."""
    sound(states("a: {action: x, route: {success: done, failure: $current, _error: $current}}"))


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
def test_a_state_with_no_way_out_is_refused(body: str) -> None:
    """Neither `next` nor a route nor `terminal`: the seed's "no valid transition"."""
    text = states(f"a: {body}")
    diagnostics = [finding for finding in check_text(text) if finding.is_error]
    assert [(finding.id, marked(text, finding.span)) for finding in diagnostics] == [("no-way-out", "a")]


def test_states_that_never_end_are_a_warning() -> None:
    """A cycle that no terminal state can be reached from is pointed out once."""
    text = states("a: {action: x, on_success: b, on_failure: done}", "b: {next: c}", "c: {next: b}")
    assert only(text) == ("warning", "never-ends", "b")


# --- judging ----------------------------------------------------------------------------------


def test_routes_without_anything_to_judge_are_refused() -> None:
    """A verdict comes from an action or an evaluator."""
    assert only(states("a: {on_success: done, on_failure: done}")) == ("error", "nothing-to-judge", "a")


def test_a_decision_state_needs_a_source() -> None:
    """An evaluator without an action judges its `source`."""
    text = states("a: {evaluate: {type: output_numeric, operator: eq, target: 0}, route: {_: done}}")
    assert only(text) == ("error", "missing-source", "output_numeric")


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
def test_a_verdict_that_nothing_routes_is_a_warning(body: str, unrouted: str) -> None:
    """Every verdict an evaluator can give leads somewhere, or that is said."""
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
    """An error without a route ends the loop, and nobody is warned for that."""
    sound(states(f"a: {{{body}}}"))


def test_a_route_for_a_verdict_that_never_comes_is_a_warning() -> None:
    """Words of another evaluator in a route are dead."""
    text = states("a: {action: x, route: {success: done, failure: done, blocked: done}}")
    assert only(text) == ("warning", "unknown-verdict", "blocked")


def test_shorthand_for_a_verdict_that_never_comes_is_a_warning() -> None:
    """`on_success` means nothing to a measurement, and is a known key all the same."""
    text = states(
        "a: {action: x, evaluate: {type: convergence, target: 0}, on_success: done, route: {_: done}}"
    )
    assert only(text) == ("warning", "shadowed-route", "on_success")
    route = "{target: done, progress: a, stall: done}"
    text = text.replace("{_: done}", route)
    assert only(text) == ("warning", "unknown-verdict", "on_success")


def test_a_misspelt_shorthand_is_an_unknown_key() -> None:
    """`on_sucess` is no verdict's key but a slip."""
    text = states("a: {action: x, on_sucess: done, on_failure: done, on_success: done}")
    assert only(text) == ("error", "unknown-key", "on_sucess")


def test_a_schema_without_listed_verdicts_needs_a_default_route() -> None:
    """Where a model may give any verdict, `_` has to take it."""
    schema = "{type: object, properties: {verdict: {type: string}}, required: [verdict]}"
    text = states(
        f"a: {{action: x, evaluate: {{type: llm_structured, schema: {schema}}}, route: {{ok: done}}}}"
    )
    assert only(text) == ("warning", "unrouted-verdict", "llm_structured")


def test_a_model_may_say_that_it_cannot_judge() -> None:
    """Where the state routes `cannot_judge`; otherwise the schema is the seed's."""
    body = "a: {action: x, evaluate: {type: llm_structured}, "
    routed = states(body + "on_cannot_judge: done, route: {success: done, _: done}}")
    other = states(body + "route: {success: done, _: done}}")
    sound(routed)
    assert "cannot_judge" in str(compile_text(routed).program)
    assert "cannot_judge" not in str(compile_text(other).program)
    assert only(states("a: {action: x, route: {cannot_judge: done, _: done}}"))[1] == "unknown-verdict"


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
def test_a_schema_has_a_verdict(schema: str, id: str) -> None:
    """A model's answer is an object with a text `verdict`."""
    text = states(
        f"a: {{action: x, evaluate: {{type: llm_structured, schema: {schema}}}, route: {{_: done}}}}"
    )
    assert only(text)[1] == id


def test_a_model_that_is_switched_off_needs_an_error_route() -> None:
    """`loops.md` 11: an explicit `llm_structured` without `_error` is refused where models are off."""
    body = "action: x, evaluate: {type: llm_structured}"
    off = HEAD + "llm: {enabled: false}\n"
    text = states(f"a: {{{body}, route: {{_: done}}}}", head=off)
    assert only(text) == ("error", "llm-disabled", "llm_structured")
    sound(states(f"a: {{{body}, route: {{_: done, _error: done}}}}", head=off))
    sound(states("a: {action: /ll:x, on_success: done, on_failure: done}", head=off))


def test_no_llm_on_the_command_line_is_checked_too() -> None:
    """Switching models off for a run finds the same."""
    text = states("a: {action: x, evaluate: {type: llm_structured}, route: {_: done}}")
    spec, document, _ = read_loop(text_source(text))
    assert spec is not None
    loop = to_fsm(spec)
    loop = loop.evolve(llm=loop.llm.evolve(enabled=False))
    assert [finding.id for finding in check(loop, document)] == ["llm-disabled"]


# --- expressions ------------------------------------------------------------------------------


def test_an_invalid_jq_expression_is_refused() -> None:
    """jq expressions are compiled before anything runs."""
    text = states("a: {action: x, evaluate: {type: output_json, path: '.a[', target: 0}, route: {_: done}}")
    assert only(text) == ("error", "invalid-jq", "'.a['")


@pytest.mark.parametrize("pattern", ["'(open'", "'a{2,1}'", "'(?=x)'", "'C++'"])
def test_an_invalid_regular_expression_is_refused(pattern: str) -> None:
    """Patterns are RE2, and what RE2 does not know is said before anything runs."""
    text = states(
        f"a: {{action: x, evaluate: {{type: output_contains, pattern: {pattern}}}, route: {{_: done}}}}"
    )
    assert only(text) == ("error", "invalid-regex", pattern)
    sound(text.replace("pattern:", "match: substring, pattern:"))


def test_an_expression_from_context_is_checked() -> None:
    """Context is known when compiling, so what it makes of a pattern is too."""
    evaluate = "{type: output_contains, pattern: '${context.p}'}"
    text = states(
        f"a: {{action: x, evaluate: {evaluate}, route: {{_: done}}}}", head=HEAD + "context: {p: '('}\n"
    )
    assert only(text)[1] == "invalid-regex"


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
    """What another key makes meaningless is marked; the seed's order decides which wins."""
    text = states(f"a: {{{body}}}")
    diagnostics = [finding for finding in check_text(text) if finding.id != "unreachable-state"]
    assert [(finding.severity, finding.id, marked(text, finding.span)) for finding in diagnostics] == [
        ("warning", id, key)
    ]


def test_a_verdict_s_key_beside_next_is_named() -> None:
    """As it was written, and not as the route that it stands for."""
    (diagnostic,) = check_text(states("a: {action: x, next: done, on_blocked: done}"))
    assert diagnostic.message == "`on_blocked` has no effect: `next` is taken for every result"


def test_error_routes_go_with_next() -> None:
    """A state that goes on whatever happened may still say where errors go."""
    sound(states("a: {action: x, next: done, on_error: done}"))
    sound(states("a: {action: x, next: done, route: {_error: done}}"))


def test_maintain_delay_without_maintain_is_a_warning() -> None:
    """A delay between cycles that never come."""
    text = states("a: {next: done}", head=HEAD + "maintain_delay: 3\n")
    assert only(text) == ("warning", "unused-key", "maintain_delay")


def test_a_maintained_loop_reaches_where_it_restarts() -> None:
    """`on_maintain` is a way between states."""
    text = HEAD + "maintain: true\nstates:\n  a: {next: end}\n  b: {next: end}\n"
    text += "  end: {terminal: true, on_maintain: b}\n"
    sound(text)
    diagnostics = check_text(text.replace("on_maintain: b", "on_maintain: c"))
    assert [(finding.id, finding.label) for finding in diagnostics] == [("unknown-state", "restarts here")]


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a/b", "../x", '"  "', '" x"', '"a\\tb"', '"\\e[31m"', "..", "x" * 201])
def test_a_loops_name_is_fit_for_files(name: str) -> None:
    """A name becomes files and folders, so it is printable and stays in one."""
    text = f"name: {name}\ninitial: done\nstates:\n{DONE}"
    diagnostics = [finding for finding in _all(text) if finding.is_error]
    assert [finding.id for finding in diagnostics] in (["bad-name"], ["empty-text"])


@pytest.mark.parametrize("name", ["a/b", "$x", '"a b"', '"a\\nb"', "y" * 201])
def test_a_states_name_is_one_word(name: str) -> None:
    """`/` and `$` mean something in lowered names and targets."""
    text = f"name: x\ninitial: {name}\nstates:\n  {name}: {{terminal: true}}\n"
    assert "bad-name" in [finding.id for finding in check_text(text)]


def test_a_capture_can_be_written_in_a_variable() -> None:
    """A capture's name fits into `${captured.<name>.output}`."""
    assert only(states("a: {action: x, capture: a b, next: done}")) == ("error", "bad-name", "a b")


def _all(text: str) -> list[Diagnostic]:
    spec, document, found = read_loop(text_source(text, "t.yaml"))
    return [*found, *(check(to_fsm(spec), document) if spec is not None else ())]


# --- settings ---------------------------------------------------------------------------------


def test_the_model_holds_no_variables_but_the_default() -> None:
    """`loops.md` 17: `${DEFAULT_LLM_MODEL}` is the only one."""
    text = states("a: {next: done}", head=HEAD + "llm: {model: '${context.m}'}\n")
    assert only(text) == ("error", "unknown-variable", "'${context.m}'")
    sound(states("a: {next: done}", head=HEAD + 'llm: {model: "${DEFAULT_LLM_MODEL}"}\n'))


def test_a_scope_holds_no_variables() -> None:
    """A scope is claimed before anything is known."""
    text = states("a: {next: done}", head=HEAD + "scope: ['${env.HOME}']\n")
    assert only(text) == ("error", "bad-scope", "'${env.HOME}'")


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
def test_a_variable_that_cannot_be_is_marked(command: str, id: str, variable: str) -> None:
    """Variables are checked inside the text, at their own place."""
    text = action(f'"{command}"')
    diagnostics = [finding for finding in check_text(text) if finding.is_error]
    assert [finding.id for finding in diagnostics] == [id]
    assert marked(text, diagnostics[0].span) == variable


def test_a_result_field_without_details_is_explained() -> None:
    """`${result.reason}` is meant as `${result.details.reason}`."""
    text = states(
        "a: {action: x, on_success: b, on_failure: b}", "b: {action: 'echo ${result.reason}', next: done}"
    )
    assert helped(text) == "did you mean `${result.details.reason}`?"


@pytest.mark.parametrize(
    "command",
    [
        "echo $HOME ${HOME} ${X:-d} ${#x} ${a%b}",
        "echo ${loop.name} ${state.iteration} ${env.HOME}",
        "$${x.y}",
    ],
)
def test_the_shells_own_variables_are_no_mistake(command: str) -> None:
    """`loops.md` 6: what belongs to the shell passes."""
    sound(action(f'"{command}"'))


def test_raw_variables_are_named() -> None:
    """`loops.md` 7: the validator names each use."""
    text = states(
        "a: {action: x, capture: v, next: b}", "b: {action: '${raw:captured.v.output}', next: done}"
    )
    assert only(text) == ("warning", "raw-variable", "${raw:captured.v.output}")


def test_a_capture_that_some_way_misses_is_a_warning() -> None:
    """`loops.md` 6: a capture that some path reaches before it is set, with that path."""
    text = states(
        "a: {action: x, on_success: b, on_failure: c}",
        "b: {action: x, capture: v, next: c}",
        "c: {action: 'echo ${captured.v.output}', next: done}",
    )
    assert only(text) == ("warning", "maybe-unset", "${captured.v.output}")
    assert (helped(text) or "").startswith("on the path a → c; ")
    sound(text.replace("output}", "output:default=none}"))


def test_a_capture_that_every_way_sets_is_sound() -> None:
    """Ways that join after the capture agree, loops included."""
    sound(
        states(
            "a: {action: x, capture: v, on_success: b, on_failure: c}",
            "b: {action: 'echo ${captured.v.exit_code}', next: c}",
            "c: {action: 'echo ${captured.v.output}', on_success: a, on_failure: done}",
        )
    )


def test_a_state_reads_its_own_capture_in_its_evaluator_and_not_in_its_action() -> None:
    """A capture is set when the action has run."""
    evaluate = "{type: output_numeric, source: '${captured.v.output}', operator: eq, target: 0}"
    sound(states(f"a: {{action: x, capture: v, evaluate: {evaluate}, route: {{_: done}}}}"))
    text = states("a: {action: 'echo ${captured.v.output}', capture: v, next: done}")
    assert only(text)[1] == "maybe-unset"


def test_prev_and_result_before_anything_ran_are_warnings() -> None:
    """The first state has no predecessor."""
    assert only(states("a: {action: 'echo ${prev.output}', next: done}"))[1] == "maybe-unset"
    assert only(states("a: {action: 'echo ${result.verdict}', next: done}"))[1] == "maybe-unset"


def test_previous_of_a_measurement_may_be_unset() -> None:
    """`loops.md` 4: an explicit `previous` that is undefined falls back."""
    evaluate = "{type: convergence, target: 0, previous: '${prev.output}'}"
    sound(states(f"a: {{action: x, evaluate: {evaluate}, route: {{_: done}}}}"))


@pytest.mark.parametrize(
    ("context", "id"),
    [
        ("{p: '${context.q}', q: '${context.p}'}", "context-cycle"),
        ("{p: '${context.nope}'}", "unknown-variable"),
        ("{p: '${contxt.q}'}", "unknown-namespace"),
    ],
)
def test_bad_context_is_reported_once_and_where_it_stands(context: str, id: str) -> None:
    """What is wrong in a context value is said there and not at each use."""
    head = HEAD + f"context: {context}\n"
    text = states("a: {action: 'echo ${context.p} ${context.p}', next: done}", head=head)
    (finding,) = check_text(text)
    assert finding.id == id
    assert finding.span is not None
    assert finding.span.line == 3


# --- mistakes do not spread -------------------------------------------------------------------


def test_a_mistake_makes_no_others() -> None:
    """A state that could not be read whole is not blamed for what is missing."""
    text = states(
        "a: {action: x, on_success: [b], on_failure: c}",
        "b: {action: x, capture: [v], next: c}",
        "c: {action: 'echo ${captured.v.output}', next: done}",
    )
    spec, document, diagnostics = read_loop(text_source(text))
    assert spec is not None
    assert [finding.id for finding in diagnostics] == ["wrong-type", "wrong-type"]
    assert list(check(to_fsm(spec), document)) == []


def test_paradigms_are_checked_at_the_authors_text() -> None:
    """A finding about a made state stands at what it was made from."""
    text = "paradigm: imperative\nname: x\nsteps:\n  - echo ${captured.v.output}\nuntil: {check: y}\n"
    assert only(text) == ("error", "unset-capture", "${captured.v.output}")


# --- loops of little-loops --------------------------------------------------------------------


@pytest.mark.parametrize("type", ["prompts", "approval", "contract"])
def test_an_action_of_an_unknown_type_is_not_read_as_shell(type: str) -> None:
    """Its text may be anything; the type is the only finding."""
    text = "it's `odd ${prev.output} $(and (unclosed ${captured.y.output}"
    lines = (f'a: {{action: "{text}", action_type: {type}, capture: y, on_success: done, on_failure: a}}',)
    assert only(states(*lines))[1:] == ("unknown-value", type)


def test_a_target_of_little_loops_needs_its_limit() -> None:
    """`on_retry_exhausted` is taken where `max_retries` is given, and only there."""
    text = states("a: {action: x, on_success: done, on_failure: a, on_retry_exhausted: done}")
    assert only(text) == ("warning", "unused-key", "on_retry_exhausted")
    sound(text.replace("on_retry_exhausted", "max_retries: 2, on_retry_exhausted"))
    text = states("a: {action: x, on_success: done, on_failure: a, max_retries: 2}")
    assert only(text) == ("error", "missing-field", "max_retries")


FAILING = states("a: {action: x, next: done, on_error: b}", "b: {action: y, next: done}")
FAILED = states("a: {action: x, on_success: done, on_failure: failed}", "failed: {terminal: true}")


@pytest.mark.parametrize(("text", "place"), [(FAILING, "on_error"), (FAILED, "failed")])
def test_a_failure_that_passes_silently_is_a_warning(text: str, place: str) -> None:
    """`next` takes failures, and a terminal named `failed` is a success; a dialect says what is meant."""
    assert only(text) == ("warning", "silent-failure", place)
    sound(text.replace(HEAD, HEAD + "dialect: llc\n"))
    sound(text.replace(HEAD, HEAD + "dialect: little-loops\n"))


def test_the_status_of_a_terminal_says_what_is_meant() -> None:
    """Either status; the name then means nothing."""
    for status in ("success", "failure"):
        sound(FAILED.replace("failed: {", f"failed: {{status: {status}, "))


def test_a_dialect_decides_where_a_failure_leads() -> None:
    """In little-loops `on_error` takes the failure of a command before `next`, and names mark failures."""

    def loop(text: str) -> Loop:
        spec, document, _ = read_loop(text_source(text.replace(HEAD, HEAD + "dialect: little-loops\n")))
        assert spec is not None
        found, _ = loop_of(spec, document)
        assert found is not None
        return found

    assert loop(FAILING).states["a"].routes == {"success": "done", "failure": "b", "_error": "b"}
    assert loop(FAILED).states["failed"].status == "failure"


def test_yes_and_no_are_success_and_failure() -> None:
    """In a route as in `on_yes`; where a schema has these words, they are verdicts of their own."""
    sound(states("a: {action: x, route: {yes: done, no: a}}"))
    verdict = "{type: string, enum: [yes, no]}"
    schema = f"{{type: object, properties: {{verdict: {verdict}}}, required: [verdict]}}"
    judge = f"evaluate: {{type: llm_structured, schema: {schema}}}"
    sound(states(f"a: {{action: x, {judge}, on_yes: done, on_no: a}}"))
    sound(states(f"a: {{action: x, {judge}, route: {{yes: done, no: a}}}}"))
