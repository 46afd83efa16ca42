"""Templates: `${…}` syntax, compile-time substitution and errors (loops.md, sections 5 and 6)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llc.frontend.template.nodes import (
    NAMESPACES,
    QUOTING_PRIMITIVES,
    Constant,
    Literal,
    Problem,
    Template,
    Variable,
    text_of,
)
from llc.frontend.template.template import KINDS, parse
from llc.ir.primitives import PRIMITIVES
from llc.vm.primitives.handlers import text as machine_text
from llc.vm.values.values import from_host

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def value(text: str, context: dict[str, Any] | None = None) -> Template:
    return parse(text, kind="value", context=context)


def problem_of(text: str, kind: str = "value", context: dict[str, Any] | None = None) -> Problem:
    (problem,) = parse(text, kind=kind, context=context).problems
    return problem


# --- variables --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_rule_6_seven_namespaces_interpolate(kind: str, namespace: str) -> None:
    """`${namespace.path}` is a variable in every kind of text."""
    template = parse(f"a ${{{namespace}.x.y-z.0}} b", kind=kind)
    assert template.problems == ()
    (variable,) = template.variables
    assert (variable.namespace, variable.path) == (namespace, ("x", "y-z", "0"))
    assert template.parts[0] == Literal("a ")
    assert template.parts[2] == Literal(" b")


SHELL_SYNTAX = (
    "${NAME} ${X:-d} ${#x} ${a%b} ${a##*/} ${!x} ${x[@]} ${x/a/b.c} ${1} ${raw:0:2} ${raw:-x.y} "
    "${captured} ${env:-x} ${a-b.c} $NAME $(x) ${x@Q} $"
)


@pytest.mark.parametrize("text", SHELL_SYNTAX.split())
def test_rule_6_shell_syntax_is_passed_through(text: str) -> None:
    """In a shell action, `${…}` without a namespace and dot is shell syntax."""
    template = parse(f"echo {text} x", kind="shell")
    assert template.problems == ()
    assert template.fixed == f"echo {text} x"


def test_rule_6_slash_commands_keep_unknown_syntax() -> None:
    """The receiver of the command may understand it."""
    template = parse("/fix ${NAME} ${X:-d} ${prev.output}", kind="slash")
    assert template.problems == ()
    assert template.parts[0] == Literal("/fix ${NAME} ${X:-d} ")


@pytest.mark.parametrize("kind", KINDS)
def test_rule_6_two_dollars_are_a_literal(kind: str) -> None:
    """`$${` is a literal `${`, also before a namespace."""
    template = parse("a $${prev.output} $${X} b", kind=kind)
    assert template.problems == ()
    assert template.fixed == "a ${prev.output} ${X} b"


def test_rule_6_defaults() -> None:
    """`:default=` takes the text up to the brace, which may be empty."""
    plain, text_default, empty = value(
        "${captured.x.output} ${captured.x.output:default=a: b=c} ${env.X:default=}"
    ).variables
    assert (plain.default, text_default.default, empty.default) == (None, "a: b=c", "")


def test_rule_7_raw_is_not_quoted() -> None:
    """`${raw:…}` is a variable with the flag `is_raw`, and is never quoted."""
    template = parse("ls ${raw:captured.files.output:default=.}", kind="shell")
    (variable,) = template.variables
    assert (variable.raw, variable.quoting, variable.default, variable.is_data) == (True, "none", ".", False)
    assert variable.text == "${raw:captured.files.output}"


def test_variable_has_its_offsets() -> None:
    """`start` and `end` are offsets in the source text."""
    text = "é ${prev.output:default=x} ${raw:env.HOME}"
    first, second = value(text).variables
    assert text[first.start : first.end] == "${prev.output:default=x}"
    assert text[second.start : second.end] == "${raw:env.HOME}"


@pytest.mark.parametrize("kind", ["slash", "value"])
def test_only_shell_actions_quote(kind: str) -> None:
    """Other texts are not passed to a shell."""
    template = parse("'${prev.output}' \"${env.X}\"", kind=kind)
    assert {variable.quoting for variable in template.variables} == {"none"}


# A command for each quoting; `number` is for positions where quoting is impossible.
QUOTED = {
    "word": "echo ${prev.output}",
    "single": "echo '${prev.output}'",
    "double": 'echo "${prev.output}"',
    "heredoc": "cat <<END\n${prev.output}\nEND\n",
    "quoted_heredoc": "cat <<'END'\n${prev.output}\nEND\n",
    "number": "echo $((${prev.exit_code}))",
}


def test_every_quoting_has_its_primitive() -> None:
    """Each quoting has a primitive of the machine and a command that uses it."""
    assert set(QUOTING_PRIMITIVES.values()) <= PRIMITIVES.keys(), "add a row to ir/primitives.py"
    assert QUOTED.keys() == QUOTING_PRIMITIVES.keys(), "add it to QUOTED or to template/nodes.py"
    for quoting, command in QUOTED.items():
        (variable,) = parse(command, kind="shell").variables
        assert variable.quoting == quoting, f"frontend/shell/contexts.py does not find `{quoting}`"


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_rule_6_an_unknown_namespace_is_a_problem_with_a_suggestion(kind: str) -> None:
    """The help names the nearest namespace and the escape for a literal."""
    problem = problem_of("a ${contxt.x}", kind)
    assert problem.id == "unknown-namespace"
    assert "`contxt`" in problem.message
    assert problem.help is not None
    assert "did you mean `context`?" in problem.help
    assert "`$${`" in problem.help
    assert (problem.start, problem.end) == (2, 13)


@pytest.mark.parametrize(
    ("text", "kind", "id"),
    [
        ("${captured.x", "shell", "unterminated-variable"),
        ("${captured.x", "value", "unterminated-variable"),
        ("${NAME", "slash", "unterminated-variable"),
        ("${", "value", "unterminated-variable"),
        ("${captured.x.output:-d}", "shell", "malformed-variable"),
        ("${captured..x}", "shell", "malformed-variable"),
        ("${captured.}", "value", "malformed-variable"),
        ("${captured.x[0]}", "value", "malformed-variable"),
        ("${ captured.x.output }", "shell", "malformed-variable"),
        ("${#captured.x.output}", "shell", "malformed-variable"),
        ("${raw:captured.x y}", "slash", "malformed-variable"),
        ("${NAME}", "value", "unknown-variable"),
        ("${prev}", "value", "unknown-variable"),
        ("${}", "value", "unknown-variable"),
        ("${${context.x}}", "value", "nested-variable"),
        ("${prev.output:default=${env.X}}", "value", "nested-variable"),
    ],
)
def test_malformed_variable_is_a_problem(text: str, kind: str, id: str) -> None:
    """One problem inside the text, with a fix."""
    problem = problem_of(text, kind)
    assert problem.id == id
    assert problem.help
    assert 0 <= problem.start < problem.end <= len(text)


def test_environment_variable_outside_shell_has_a_suggestion() -> None:
    """The help for `${HOME}` in a text without a shell is `${env.HOME}`."""
    assert "`${env.HOME}`" in (problem_of("${HOME}").help or "")


def test_all_problems_are_reported_together() -> None:
    """The parser continues after a problem."""
    problems = value("${a.b} ${X} ${prev.output} ${captured.x").problems
    assert [problem.id for problem in problems] == [
        "unknown-namespace",
        "unknown-variable",
        "unterminated-variable",
    ]


# --- context ----------------------------------------------------------------------------------


def test_rule_5_context_is_expanded_depth_first() -> None:
    """A context value may contain variables, of context and of others."""
    context = {"cmd": "mypy ${context.dir} ${prev.output}", "dir": "${context.root}/a", "root": "src"}
    template = parse("run ${context.cmd}!", kind="slash", context=context)
    assert template.parts == (
        Literal("run mypy src/a "),
        Variable("prev", ("output",)),
        Literal("!"),
    )


def test_rule_5_cycle_is_one_problem() -> None:
    """The message shows the cycle; the marked text is the variable that leads into it."""
    context = {"a": "${context.b}", "b": "x ${context.c}", "c": "${context.b}"}
    problem = problem_of("say ${context.a}", context=context)
    assert problem.id == "context-cycle"
    assert "context.b → context.c → context.b" in problem.message
    assert (problem.start, problem.end) == (4, 16)


def test_rule_5_variables_do_not_nest() -> None:
    """`${${…}}` is a problem also if context supplies the inner part."""
    assert problem_of("${context.${context.x}}", context={"x": "y", "y": "z"}).id == "malformed-variable"


def test_context_does_not_create_variables() -> None:
    """A context value is text: `$` followed by `{prev.output}` stays text."""
    template = value("${context.d}{prev.output} ${context.o}prev.output}", {"d": "$", "o": "$${"})
    assert template.fixed == "${prev.output} ${prev.output}"


def test_problem_inside_context_is_marked_at_its_use() -> None:
    """Offsets are those of the text, not of the context value."""
    problem = problem_of("run ${context.bad} now", context={"bad": "x ${foo.bar}"})
    assert problem.id == "unknown-namespace"
    assert (problem.start, problem.end) == (4, 18)


@pytest.mark.parametrize("name", ["${context.drs}", "${context.m.x}", "${context.dirs.x}", "${context.l.9}"])
def test_an_unknown_context_value_is_a_problem(name: str) -> None:
    context = {"dirs": "src", "m": {"y": 1}, "l": [1]}
    problem = problem_of(f"a {name}", context=context)
    assert problem.id == "unknown-variable"
    assert problem.help
    assert value(f"{name[:-1]}:default=d}}", context).fixed == "d"


def test_context_variables_are_kept_without_a_context() -> None:
    (variable,) = value("${context.x}").variables
    assert variable.name == "context.x"


def test_a_single_context_value_keeps_its_type() -> None:
    """`target: ${context.target}` is a number if the context value is; together with other text it is
    text.
    """
    context = {"n": 5, "s": "5", "l": ["${context.s}", 1], "deep": "${context.n}"}
    assert value("${context.n}", context).single == Constant(5)
    assert value("${context.s}", context).single == Literal("5")
    assert value("${context.l}", context).single == Constant(["5", 1])
    assert value("${context.deep}", context).single == Constant(5)
    assert value("${context.l.1}", context).single == Constant(1)
    assert value("n=${context.n} l=${context.l}", context).fixed == 'n=5 l=["5", 1]'


def test_a_shell_action_of_one_context_value_is_text() -> None:
    """Also if the context value is a number."""
    assert parse("${context.n}", kind="shell", context={"n": 5}).parts == (Literal("5"),)


def test_constants_are_substituted() -> None:
    """Values known at compile time become text, so that their quotes count."""
    template = parse("echo '${state.name}' ${loop.name}", kind="shell", known={"state.name": "a'b"})
    assert template.parts == (
        Literal("echo 'a'b' "),
        Variable("loop", ("name",)),
    )


def test_a_runtime_value_inside_a_context_list_is_a_problem() -> None:
    """A list is rendered as JSON at compile time, so it cannot contain a run-time value."""
    assert problem_of("${context.l}", context={"l": ["${prev.output}"]}).id == "unknown-variable"


@pytest.mark.parametrize("leaf", ["", "x" * 100])
def test_exponential_context_is_rejected_quickly(leaf: str) -> None:
    """Each value contains the previous one twice: forty of them are a billion, with or without text."""
    context = {f"a{n}": f"${{context.a{n - 1}}}${{context.a{n - 1}}}" for n in range(1, 41)}
    problem = problem_of("${context.a40}", context={**context, "a0": leaf})
    assert problem.id == "context-too-large"


def test_too_long_context_chain_is_a_problem() -> None:
    """The chain is neither a cycle nor large, but too deep."""
    context = {f"a{n}": f"${{context.a{n + 1}}}" for n in range(2000)}
    assert problem_of("${context.a0}", context={**context, "a2000": "x"}).id == "context-too-large"


# --- laws -------------------------------------------------------------------------------------


@given(text=st.text(), kind=st.sampled_from(KINDS))
def test_parsing_never_raises(text: str, kind: str) -> None:
    """Any text has parts, and problems are inside it."""
    template = parse(text, kind=kind)
    assert all(0 <= problem.start <= problem.end <= len(text) for problem in template.problems)
    assert Literal("") not in template.parts


@given(text=st.text("${}:.raw=default captured.xprev'\"\\", max_size=80), kind=st.sampled_from(KINDS))
def test_text_near_the_syntax_never_raises(text: str, kind: str) -> None:
    """Text made of fragments of the syntax."""
    parse(text, kind=kind, context={"x": "${context.d}", "d": 1})


@given(pieces=st.lists(st.text(st.characters(exclude_characters="$\0")), min_size=1, max_size=4))
def test_literal_text_is_kept(pieces: list[str]) -> None:
    """Text between variables is unchanged, also in a shell action."""
    text = "${loop.name}".join(pieces)
    for kind in KINDS:
        template = parse(text, kind=kind)
        assert "".join(p.text if isinstance(p, Literal) else "${loop.name}" for p in template.parts) == text


@given(text=st.text())
def test_any_text_can_be_escaped(text: str) -> None:
    """`$${` for every `${` gives the original text."""
    assert value(text.replace("${", "$${")).fixed == text


@given(data=VALUES)
def test_compiler_and_machine_render_values_equally(data: Any) -> None:
    """A substituted context value has the text that the machine would render."""
    assert text_of(data) == machine_text(from_host(data))


def test_filters() -> None:
    """Filters apply in order, a default follows them; bytes are taken from the same end as lines."""
    (variable,) = value("${prev.output:tail=200:bytes=9:default=x}").variables
    assert (variable.filters, variable.default) == ((("tail_lines", 200), ("tail_bytes", 9)), "x")
    (variable,) = value("${captured.a.stderr:head=3:bytes=9}").variables
    assert variable.filters == (("head_lines", 3), ("head_bytes", 9))
    assert problem_of("${prev.output:last=3}").id == "malformed-variable"
    assert problem_of("${context.a:tail=3}", context={"a": "b"}).id == "malformed-variable"
