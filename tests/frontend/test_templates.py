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


# --- what is a variable -----------------------------------------------------------------------


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


SHELLS_OWN = (
    "${NAME} ${X:-d} ${#x} ${a%b} ${a##*/} ${!x} ${x[@]} ${x/a/b.c} ${1} ${raw:0:2} ${raw:-x.y} "
    "${captured} ${env:-x} ${a-b.c} $NAME $(x) ${x@Q} $"
)


@pytest.mark.parametrize("text", SHELLS_OWN.split())
def test_rule_6_the_shells_own_passes_through(text: str) -> None:
    """In a shell action what has no namespace and dot belongs to the shell."""
    template = parse(f"echo {text} x", kind="shell")
    assert template.problems == ()
    assert template.fixed == f"echo {text} x"


def test_rule_6_slash_commands_keep_what_is_no_variable() -> None:
    """Whoever gets the command may know what it means."""
    template = parse("/fix ${NAME} ${X:-d} ${prev.output}", kind="slash")
    assert template.problems == ()
    assert template.parts[0] == Literal("/fix ${NAME} ${X:-d} ")


@pytest.mark.parametrize("kind", KINDS)
def test_rule_6_two_dollars_are_a_literal(kind: str) -> None:
    """`$${` stands for `${`, also before a namespace."""
    template = parse("a $${prev.output} $${X} b", kind=kind)
    assert template.problems == ()
    assert template.fixed == "a ${prev.output} ${X} b"


def test_rule_6_defaults() -> None:
    """`:default=` takes the text up to the brace, the empty one too."""
    plain, given, empty = value(
        "${captured.x.output} ${captured.x.output:default=a: b=c} ${env.X:default=}"
    ).variables
    assert (plain.default, given.default, empty.default) == (None, "a: b=c", "")


def test_rule_7_raw_is_not_quoted() -> None:
    """`${raw:…}` is a variable that is never quoted, and says so."""
    template = parse("ls ${raw:captured.files.output:default=.}", kind="shell")
    (variable,) = template.variables
    assert (variable.raw, variable.quoting, variable.default, variable.is_data) == (True, "none", ".", False)
    assert variable.text == "${raw:captured.files.output}"


def test_a_variable_knows_its_place() -> None:
    """`start` and `end` are the offsets of what the author wrote."""
    text = "é ${prev.output:default=x} ${raw:env.HOME}"
    first, second = value(text).variables
    assert text[first.start : first.end] == "${prev.output:default=x}"
    assert text[second.start : second.end] == "${raw:env.HOME}"


@pytest.mark.parametrize("kind", ["slash", "value"])
def test_only_shell_actions_quote(kind: str) -> None:
    """Other texts reach no shell."""
    template = parse("'${prev.output}' \"${env.X}\"", kind=kind)
    assert {variable.quoting for variable in template.variables} == {"none"}


# A command for each way to quote; `number` is that of the places that know no quoting.
QUOTED = {
    "word": "echo ${prev.output}",
    "single": "echo '${prev.output}'",
    "double": 'echo "${prev.output}"',
    "heredoc": "cat <<END\n${prev.output}\nEND\n",
    "quoted_heredoc": "cat <<'END'\n${prev.output}\nEND\n",
    "number": "echo $((${prev.exit_code}))",
}


def test_every_quoting_has_its_primitive() -> None:
    """What a place asks for is something the machine can do, and some place in a command asks for it."""
    assert set(QUOTING_PRIMITIVES.values()) <= PRIMITIVES.keys(), "add a row to ir/primitives.py"
    assert QUOTED.keys() == QUOTING_PRIMITIVES.keys(), "add it to QUOTED or to template/nodes.py"
    for quoting, command in QUOTED.items():
        (variable,) = parse(command, kind="shell").variables
        assert variable.quoting == quoting, f"frontend/shell/contexts.py does not find `{quoting}`"


# --- what is wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_rule_6_an_unknown_namespace_is_a_problem_with_a_suggestion(kind: str) -> None:
    """The help names the nearest namespace and how to write a literal."""
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
def test_what_looks_like_a_variable_and_is_none_is_a_problem(text: str, kind: str, id: str) -> None:
    """One problem inside the text, with what to do."""
    problem = problem_of(text, kind)
    assert problem.id == id
    assert problem.help
    assert 0 <= problem.start < problem.end <= len(text)


def test_an_environment_variable_in_a_value_is_guessed() -> None:
    """`${HOME}` where no shell reads it: the help says `${env.HOME}`."""
    assert "`${env.HOME}`" in (problem_of("${HOME}").help or "")


def test_all_problems_come_at_once() -> None:
    """The parser goes on behind what is wrong."""
    problems = value("${a.b} ${X} ${prev.output} ${captured.x").problems
    assert [problem.id for problem in problems] == [
        "unknown-namespace",
        "unknown-variable",
        "unterminated-variable",
    ]


# --- context ----------------------------------------------------------------------------------


def test_rule_5_context_is_expanded_depth_first() -> None:
    """A context value may hold variables, of context and of others."""
    context = {"cmd": "mypy ${context.dir} ${prev.output}", "dir": "${context.root}/a", "root": "src"}
    template = parse("run ${context.cmd}!", kind="slash", context=context)
    assert template.parts == (
        Literal("run mypy src/a "),
        Variable("prev", ("output",)),
        Literal("!"),
    )


def test_rule_5_a_cycle_is_a_problem_that_shows_the_way() -> None:
    """Said once, at the variable in the text that leads into it."""
    context = {"a": "${context.b}", "b": "x ${context.c}", "c": "${context.b}"}
    problem = problem_of("say ${context.a}", context=context)
    assert problem.id == "context-cycle"
    assert "context.b → context.c → context.b" in problem.message
    assert (problem.start, problem.end) == (4, 16)


def test_rule_5_variables_do_not_nest() -> None:
    """`${${…}}` is refused also where context would supply the inner part."""
    assert problem_of("${context.${context.x}}", context={"x": "y", "y": "z"}).id == "malformed-variable"


def test_context_cannot_make_a_variable_out_of_pieces() -> None:
    """What context brings in is text: `$` and `{prev.output}` side by side stay that."""
    template = value("${context.d}{prev.output} ${context.o}prev.output}", {"d": "$", "o": "$${"})
    assert template.fixed == "${prev.output} ${prev.output}"


def test_a_problem_inside_context_is_marked_where_it_is_used() -> None:
    """Offsets are into the text at hand, not into the context value."""
    problem = problem_of("run ${context.bad} now", context={"bad": "x ${foo.bar}"})
    assert problem.id == "unknown-namespace"
    assert (problem.start, problem.end) == (4, 18)


@pytest.mark.parametrize("name", ["${context.drs}", "${context.m.x}", "${context.dirs.x}", "${context.l.9}"])
def test_an_unknown_context_value_is_a_problem(name: str) -> None:
    """With the context given, nothing is left to the run."""
    context = {"dirs": "src", "m": {"y": 1}, "l": [1]}
    problem = problem_of(f"a {name}", context=context)
    assert problem.id == "unknown-variable"
    assert problem.help
    assert value(f"{name[:-1]}:default=d}}", context).fixed == "d"


def test_without_a_context_its_variables_stay() -> None:
    """A caller that has no context yet gets variables."""
    (variable,) = value("${context.x}").variables
    assert variable.name == "context.x"


def test_a_single_context_value_keeps_its_type() -> None:
    """`target: ${context.target}` is a number where the context says so, text beside others."""
    context = {"n": 5, "s": "5", "l": ["${context.s}", 1], "deep": "${context.n}"}
    assert value("${context.n}", context).single == Constant(5)
    assert value("${context.s}", context).single == Literal("5")
    assert value("${context.l}", context).single == Constant(["5", 1])
    assert value("${context.deep}", context).single == Constant(5)
    assert value("${context.l.1}", context).single == Constant(1)
    assert value("n=${context.n} l=${context.l}", context).fixed == 'n=5 l=["5", 1]'


def test_a_shell_action_of_one_context_value_is_text() -> None:
    """A command is text, also where the context has a number."""
    assert parse("${context.n}", kind="shell", context={"n": 5}).parts == (Literal("5"),)


def test_known_names_are_put_in_place() -> None:
    """What the caller knows when compiling becomes text, so that its quotes count."""
    template = parse("echo '${state.name}' ${loop.name}", kind="shell", known={"state.name": "a'b"})
    assert template.parts == (
        Literal("echo 'a'b' "),
        Variable("loop", ("name",)),
    )


def test_a_runtime_value_inside_a_context_list_is_a_problem() -> None:
    """A list is JSON when it is shown; a value that only a run knows cannot stand in it."""
    assert problem_of("${context.l}", context={"l": ["${prev.output}"]}).id == "unknown-variable"


@pytest.mark.parametrize("leaf", ["", "x" * 100])
def test_a_context_bomb_is_refused_quickly(leaf: str) -> None:
    """Each value names the one before twice: forty of them are a billion, with text or without."""
    context = {f"a{n}": f"${{context.a{n - 1}}}${{context.a{n - 1}}}" for n in range(1, 41)}
    problem = problem_of("${context.a40}", context={**context, "a0": leaf})
    assert problem.id == "context-too-large"


def test_a_long_chain_of_context_is_refused() -> None:
    """Not a cycle and not large, but deeper than anybody means."""
    context = {f"a{n}": f"${{context.a{n + 1}}}" for n in range(2000)}
    assert problem_of("${context.a0}", context={**context, "a2000": "x"}).id == "context-too-large"


# --- laws -------------------------------------------------------------------------------------


@given(text=st.text(), kind=st.sampled_from(KINDS))
def test_parsing_never_raises(text: str, kind: str) -> None:
    """Whatever the text, there are parts, and problems lie inside it."""
    template = parse(text, kind=kind)
    assert all(0 <= problem.start <= problem.end <= len(text) for problem in template.problems)
    assert Literal("") not in template.parts


@given(text=st.text("${}:.raw=default captured.xprev'\"\\", max_size=80), kind=st.sampled_from(KINDS))
def test_text_near_the_syntax_never_raises(text: str, kind: str) -> None:
    """The same with text made of the syntax's own pieces."""
    parse(text, kind=kind, context={"x": "${context.d}", "d": 1})


@given(pieces=st.lists(st.text(st.characters(exclude_characters="$\0")), min_size=1, max_size=4))
def test_literal_text_is_kept(pieces: list[str]) -> None:
    """Between variables every character stays, in a shell action too."""
    text = "${loop.name}".join(pieces)
    for kind in KINDS:
        template = parse(text, kind=kind)
        assert "".join(p.text if isinstance(p, Literal) else "${loop.name}" for p in template.parts) == text


@given(text=st.text())
def test_any_text_can_be_escaped(text: str) -> None:
    """`$${` for every `${` gives the text back."""
    assert value(text.replace("${", "$${")).fixed == text


@given(data=VALUES)
def test_compiler_and_machine_show_values_alike(data: Any) -> None:
    """A context value put in place reads as it would if the machine had shown it."""
    assert text_of(data) == machine_text(from_host(data))


def test_filters_take_a_part_of_a_value() -> None:
    """In order, with a default behind them; bytes are taken from the end that lines are."""
    (variable,) = value("${prev.output:tail=200:bytes=9:default=x}").variables
    assert (variable.filters, variable.default) == ((("tail_lines", 200), ("tail_bytes", 9)), "x")
    (variable,) = value("${captured.a.stderr:head=3:bytes=9}").variables
    assert variable.filters == (("head_lines", 3), ("head_bytes", 9))
    assert problem_of("${prev.output:last=3}").id == "malformed-variable"
    assert problem_of("${context.a:tail=3}", context={"a": "b"}).id == "malformed-variable"
