"""Rule 7 of loops.md: a value reaches a program byte for byte, and is never executed.

The first tests run random programs under every available shell; the others test the quoting of a variable, or
the error, for one position each.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laws import tried
from shell_programs import PRINTF, SHELLS, VALUES, filled, filled_with, programs, run, token_sequences

from llc.frontend.compile import compile_text
from llc.frontend.template.nodes import Problem
from llc.frontend.template.template import parse
from llc.vm.code.emit import emit
from llc.vm.machine.machine import Effect
from llc.vm.tiered import Machine
from llc.vm.values.faults import PrimitiveFault

V = "${captured.v.output}"
bash = [shell for shell in SHELLS if "bash" in shell]


def shell_name(shell: str) -> str:
    return Path(shell).name


def problem_of(command: str) -> Problem:
    """The only problem of a command in which V stands for a variable."""
    (problem,) = parse(command.replace("V", V), kind="shell").problems
    return problem


def quotings(command: str) -> list[str]:
    template = parse(command.replace("V", V), kind="shell")
    assert template.problems == ()
    return [variable.quoting for variable in template.variables]


# --- real shells ------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS, ids=shell_name)
@settings(max_examples=tried(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_rule_7_values_arrive_byte_for_byte_and_nothing_else_runs(shell: str, data: st.DataObject) -> None:
    """For any values at any positions, the programs get exactly these values."""
    text, values, printed = data.draw(programs("bash" in shell))
    template = parse(text, kind="shell")
    assert template.problems == ()
    with tempfile.TemporaryDirectory() as folder:
        done = run(shell, filled(template, values), Path(folder))
        left = os.listdir(folder)
    assert done.stdout == "".join(part + "\0" for part in printed).encode()
    assert (done.stderr, done.returncode, left) == (b"", 0, [])


@pytest.mark.parametrize("shell", SHELLS, ids=shell_name)
@settings(max_examples=tried(50), deadline=None, suppress_health_check=list(HealthCheck))
@given(tokens=token_sequences())
def test_rule_7_holds_in_any_accepted_text(shell: str, tokens: tuple[str, dict[str, str]]) -> None:
    """In random shell tokens a hostile value is not executed."""
    text, values = tokens
    template = parse(text, kind="shell")
    if any(problem.severity == "error" for problem in template.problems):
        return
    with tempfile.TemporaryDirectory() as folder:
        run(shell, filled(template, values), Path(folder))
        assert not os.path.exists(os.path.join(folder, "pwned"))


@pytest.mark.parametrize("shell", SHELLS, ids=shell_name)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(value=VALUES.filter(lambda value: 0 < len(value.encode()) < 100 and "/" not in value))
def test_rule_7_holds_in_redirections(shell: str, value: str) -> None:
    """Any value names the file."""
    command = f"printf x > ./{V}; cat < ./{V}; printf y 2>> ./{V}"
    template = parse(command, kind="shell")
    if value in (".", ".."):
        return
    with tempfile.TemporaryDirectory() as folder:
        done = run(shell, filled(template, {"v": value}), Path(folder))
        assert os.listdir(folder) == [value]
    assert (done.stdout, done.stderr) == (b"xy", b"")


@pytest.mark.parametrize("shell", SHELLS, ids=shell_name)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=st.lists(VALUES, min_size=1, max_size=3))
def test_rule_7_a_heredoc_ends_at_its_own_delimiter(shell: str, values: list[str]) -> None:
    """No value ends the text or loses its tabs."""
    lines = [f"{V.replace('v', f'v{index}')}" for index in range(len(values))]
    template = parse("cat <<-EOF\n\t" + "\n".join(lines) + "\n\tEOF\nprintf end", kind="shell")
    named = {f"v{index}": value for index, value in enumerate(values)}
    with tempfile.TemporaryDirectory() as folder:
        done = run(shell, filled(template, named), Path(folder))
    assert done.stdout == ("\n".join(values) + "\nend").encode()


_LINES = st.lists(
    st.lists(st.sampled_from(["V", "V", "E", "OF", "x ", "\t", "$X `(' \\", ""]), max_size=4).map("".join),
    min_size=1,
    max_size=3,
)
_NEAR_DELIMITERS = (
    "EOF",
    "\nEOF\n",
    "E",
    "OF",
    "\nE",
    "OF\n",
    "EO",
    "F",
    "",
    "\n",
    "\tEOF",
    "EOF ",
    "\nEOF\n:>pwned\n",
)


@pytest.mark.parametrize("text", ["E\x80", "a\nEO\u4e2d", "EOF\u00e9"])
def test_line_of_which_a_shell_drops_a_byte_is_a_fault(text: str) -> None:
    template = parse("cat <<'EOF'\n${captured.v.output}\nEOF", kind="shell")
    with pytest.raises(PrimitiveFault, match="begins like the delimiter `EOF`"):
        filled(template, {"v": text})
    assert filled(template, {"v": "\u00e9 EOF\u00e9 E"})


@pytest.mark.parametrize("shell", SHELLS, ids=shell_name)
@settings(max_examples=tried(50), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lines=_LINES,
    values=st.lists(VALUES | st.sampled_from(_NEAR_DELIMITERS), min_size=3, max_size=3),
    quote=st.sampled_from(["'EOF'", '"EOF"', "\\EOF"]),
)
def test_rule_7_heredoc_with_quoted_delimiter_keeps_values(
    shell: str, lines: list[str], values: list[str], quote: str
) -> None:
    """A file gets each byte; a value with a line that could be the delimiter is a fault."""
    text, names = "", []
    for part in re.split("(V)", "\n".join(lines)):
        names += [f"v{len(names)}"] if part == "V" else []
        text += f"${{captured.{names[-1]}.output}}" if part == "V" else part
    given_values = {name: values[index % 3] for index, name in enumerate(names)}
    if "EOF" in lines:
        return
    template = parse(f"cat > f <<{quote}\n{text}\nEOF\ncat f; printf end", kind="shell")
    if any(line.count("V") > 1 and line.replace("V", "") == "EOF" for line in lines):
        assert template.problems
        return
    if any(may_start_like_eof(line) for line in lines):
        assert template.problems
        return
    assert template.problems == ()
    expected = text
    for name in given_values:
        expected = expected.replace(f"${{captured.{name}.output}}", f"\0{name}\0", 1)
    for name, value in given_values.items():
        expected = expected.replace(f"\0{name}\0", value, 1)
    with tempfile.TemporaryDirectory() as folder:
        try:
            command = filled(template, given_values)
        except PrimitiveFault:
            return
        assert "EOF" not in expected.split("\n")
        done = run(shell, command, Path(folder))
        assert os.listdir(folder) == ["f"]
    assert done.stdout == (expected + "\nend").encode()


def test_line_that_may_become_the_delimiter_is_an_error() -> None:
    """The line is the delimiter if its values are empty."""
    template = parse(f"cat <<'EOF'\n{V}EOF{V}\nEOF", kind="shell")
    assert ["if its values were empty" in problem.message for problem in template.problems] == [True, True]


@pytest.mark.parametrize(
    ("line", "errors"), [("VEV", 1), ("VxVEOV", 1), ("EVOV", 1), ("xVOV", 0), ("VE V", 0)]
)
def test_line_that_may_start_like_the_delimiter_is_an_error(line: str, errors: int) -> None:
    """dash drops a byte of a value after such a prefix."""
    template = parse("cat <<'EOF'\n" + line.replace("V", V) + "\nEOF", kind="shell")
    assert [problem.id for problem in template.problems] == ["unquotable-variable"] * errors
    assert all("would begin like its delimiter" in problem.message for problem in template.problems)
    assert may_start_like_eof(line) == bool(errors)


def may_start_like_eof(line: str) -> bool:
    """Whether a value V may follow a prefix of `EOF`, if a value before it is empty or ends a line."""
    parts = line.split("V")
    begun = ["".join(parts[first:end]) for end in range(2, len(parts)) for first in range(end)]
    return any(text and "EOF".startswith(text) for text in begun)


def test_value_alone_on_its_line_faults_only_if_it_is_the_delimiter() -> None:
    """A common prefix with the delimiter is harmless."""
    template = parse(f"cat <<'EOF'\na {V}\n{V}\nEOF", kind="shell")
    assert filled_with(template, "E\nEOF \nOF") == "cat <<'EOF'\na E\nEOF \nOF\nE\nEOF \nOF\nEOF"
    with pytest.raises(PrimitiveFault, match="could be the delimiter `EOF`"):
        filled_with(template, "a\nEOF\nb")


def test_value_in_code_of_a_heredoc_is_an_error() -> None:
    """A shell or another interpreter that reads the heredoc would execute the value."""
    for command in (
        "sh <<'EOF'\necho V\nEOF",
        "cat <<'EOF' | sh\necho V\nEOF",
        "cat > f <<'EOF'\nV\nEOF\nsh f",
    ):
        plain = command.replace("'EOF'", "EOF")
        assert (
            [problem.message for problem in parse(command.replace("V", V), kind="shell").problems]
            == [problem.message for problem in parse(plain.replace("V", V), kind="shell").problems]
            != []
        )


LOOP = """
name: carry
initial: get
states:
  get:
    action: "get it"
    capture: v
    next: use
  use:
    action: |
      P '%s\\0' ${captured.v.output} 'a${captured.v.output}' "b${prev.output}"
      cat <<EOF
      ${captured.v.output}
      EOF
    next: done
  done:
    terminal: true
""".replace("P ", PRINTF + " ")


@pytest.mark.parametrize("shell", SHELLS, ids=shell_name)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(value=VALUES)
def test_rule_7_holds_for_a_compiled_loop(shell: str, value: str) -> None:
    """The value goes from the result of one action through the machine into the command of the next."""
    machine = Machine(emit(compile_text(LOOP).program))
    first = machine.resume()
    assert isinstance(first, Effect)
    assert first.args["command"] == "get it"
    result = {"output": value + "\n", "stderr": "", "exit_code": 0, "duration_ms": 1, "elapsed_ms": 1}
    second = machine.resume(result)
    assert isinstance(second, Effect)
    with tempfile.TemporaryDirectory() as folder:
        done = run(shell, second.args["command"], Path(folder))
        assert os.listdir(folder) == []
    assert done.stdout == f"{value}\0a{value}\0b{value}\0{value}\n".encode()
    assert done.stderr == b""


# --- quoting ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo V", ["word"]),
        ("echo a/V.txt --x=V V", ["word", "word", "word"]),
        ("echo 'a V b'", ["single"]),
        ('echo "a V b" "V"', ["double", "double"]),
        ('echo "it\'s V" \'say "V"\'', ["double", "single"]),
        ("echo it\\'s V", ["word"]),
        ('x=V y="V" cmd', ["word", "double"]),
        ('echo "$(grep V "f V" \'V\')" V', ["word", "double", "single", "word"]),
        ('echo "${X:-d}" ${#X} ${X%.*} V', ["word"]),
        ('echo "a\\"V\\\\" V', ["double", "word"]),
        ("case V in V|'V') echo V;; (x) ;; esac; echo V", ["word", "word", "single", "word", "word"]),
        ("for x in V 'V'; do echo V; done", ["word", "single", "word"]),
        ("if [ V = x ]; then echo V; elif ! test V; then :; fi", ["word", "word", "word"]),
        ("f() { echo V; }; f V", ["word", "word"]),
        ("function g { echo V; }", ["word"]),
        ("cat > V <<EOF\nV 'V'\nEOF\necho V", ["word", "heredoc", "heredoc", "word"]),
        ("cat <<A <<-'B'\nV\nA\n\tx\n\tB\necho V", ["heredoc", "word"]),
        ("a=(V 'V' # V it's\n V); echo V", ["word", "single", "word", "word"]),
        ("[[ V == x* && ( -n V ) ]] || echo V", ["word", "word", "word"]),
        ("diff <(sort -- V) >(cat V) V", ["word", "word", "word"]),
        ("echo $(( (1 + $X) * ${Y:-2} )) V", ["word"]),
        ("for ((i = 0; i < 3; i++)); do echo V; done", ["word"]),
        ("echo $'\\t' V", ["word"]),
        ("echo `date +%s` V", ["word"]),
        ("echo a#V b\\ V", ["word", "word"]),
        ("echo \\\n  V \\\n  V", ["word", "word"]),
        ('V/bin/tool "V/x" ./V', ["word", "double", "word"]),
        ("./V; x=V y; timeout V sudo -u V ls; command -v V", ["word"] * 5),
        ("for x in eval V; do ls $x; done; select x in sudo V; do ls; done", ["word", "word"]),
        ("sh -c 'echo \"$1\"' _ V", ["word"]),
        ("python3 -c 'import sys' V", ["word"]),
        ("python3 tool.py -c V; python -m pytest -c V", ["word", "word"]),
        ("awk -v x=V '{ print x }' V", ["word", "word"]),
        ("jq --arg v V '.a == $v' V", ["word", "word"]),
        ("ssh -- V uptime", ["word"]),
        ("[ V -gt 3 ]", ["word"]),
        ("local x=V; export y=V", ["word", "word"]),
    ],
)
def test_variable_is_quoted_for_its_position(command: str, expected: list[str]) -> None:
    assert quotings(command) == expected


@pytest.mark.parametrize(
    "command",
    [
        "exit $(( N + 1 ))",
        "[[ N -gt 1 ]]",
        "((N > 1)) && x",
        "bash -c 'exit N'",
        "cat <<-'EOF'\nN\nEOF",
        "x=${Y:-N}",
        "ssh host exit N",
    ],
)
@pytest.mark.parametrize(
    "variable",
    [
        "${prev.exit_code}",
        "${captured.x.duration_ms}",
        "${result.details.exit_code}",
        "${prev.exit_code:default=0}",
    ],
)
def test_integer_is_allowed_in_unquotable_position(command: str, variable: str) -> None:
    """Exit codes and durations are always integers; the machine checks this again."""
    template = parse(command.replace("N", variable), kind="shell")
    assert template.problems == ()
    assert [part.quoting for part in template.variables] == ["number"]
    assert filled_with(template, "3") == command.replace("N", "3")


@pytest.mark.parametrize("variable", ["${prev.exit_code:default=a[0]}", "${env.exit_code}", "${prev.output}"])
def test_other_values_are_not_integers(variable: str) -> None:
    """A non-numeric default, and a name that only resembles an integer variable."""
    (problem,) = parse(f"echo $(( {variable} ))", kind="shell").problems
    assert problem.id == "unquotable-variable"


def test_variable_in_a_comment_is_not_substituted() -> None:
    """A value with a newline would end the comment."""
    template = parse(f"# old: {V}\necho {V} # and {V}", kind="shell")
    assert template.fixed is None
    assert [variable.quoting for variable in template.variables] == ["word"]
    assert filled(template, {"v": "a\nb"}) == f"# old: {V}\necho 'a\nb' # and {V}"


def test_authors_text_is_spliced_as_written() -> None:
    """`context`, `loop`, `state` and `raw:` are never quoted, at any position."""
    template = parse(
        "a=$((${state.iteration}+1)); eval ${raw:captured.v.output} `${context.c}` ${loop.elapsed_ms}",
        kind="shell",
        context={"c": "date"},
    )
    assert template.problems == ()
    assert {variable.quoting for variable in template.variables} == {"none"}


def test_quotes_from_context_are_respected() -> None:
    """Context values are substituted first, so their quotes affect the positions after them."""
    context = {"open": "echo '", "q": '"'}
    template = parse(f"${{context.open}}{V}' ${{context.q}}{V}${{context.q}}", kind="shell", context=context)
    assert [variable.quoting for variable in template.variables] == ["single", "double"]


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("echo \\V", "follows a backslash"),
        ('echo "\\V"', "follows a backslash"),
        ("cat <<EOF\n\\V\nEOF", "follows a backslash"),
        ("echo ${X:-V}", "inside the shell's own `${…}`"),
        ('echo "${X:-V}"', "inside the shell's own `${…}`"),
        ("echo `grep V f`", "inside backticks"),
        ("echo $((V + 1))", "in arithmetic"),
        ("((V > 1)) && x", "in arithmetic"),
        ("for ((i = 0; i < V; i++)); do x; done", "in arithmetic"),
        ("echo $'a V'", "inside `$'…'`"),
        ("cat <<-'EOF'\nV\nEOF", "tabs would be removed"),
        ("echo $(cat <<'EOF'\nV\nEOF\n)", "inside `$( … )`"),
        ("cat <<EOF\n$(echo V)\nEOF", "in a command inside a here-document"),
        ('echo "$(cat <<EOF\nV\nEOF\n)"', "in a here-document inside `$( … )`"),
        ("cat <<V\nx\nV", "is the delimiter"),
        ("x >&V", "expands twice"),
        ("x 2<&V", "expands twice"),
        # positions after text that the parser cannot follow with certainty
        ('echo "${X:-it\'s}" V', "quotes or commands inside"),
        ("echo $[1+1] V", "`$[`"),
        ("echo $'it\\'s' V", "end at different places"),
        ('echo `echo "` V', "backticks with unbalanced quotes"),
        ("echo $((cd x; ls) | wc) V", "not plain arithmetic"),
        ("shopt -s extglob\nls !(*.o) V", "directly after a word"),
        ("alias l=ls\nl V", "`alias`"),
        ("echo $(case x in x) echo;; esac) V", "`case` pattern without its `(`"),
        ("echo $(ls # it's\n) V", "comment with quotes"),
        ("echo ) V", "an unmatched `)`"),
        ("[[ a =~ (#|b) ]] && V", "`#` inside"),
        ("cat <<EOF\na\\\nEOF\nEOF\necho V", "continued line in a here-document"),
        ("cat <<$X\na\n$X\necho V", "not one plain word"),
        # syntax errors of the shell
        ("echo 'V", "`'` left open"),
        ('echo V "x', '`"` left open'),
        ("echo $(V", "`(` left open"),
        ("cat <<EOF\nV\n EOF", "here-document left open"),
        ("case V in x) y;;", "`case` left open"),
        ("a=(V | x)", "array left open"),
    ],
)
def test_unquotable_position_is_an_error(command: str, message: str) -> None:
    """One error gives the reason, names and marks the variable, and has a fix."""
    problem = problem_of(command) if command.count("V") == 1 else None
    problems = parse(command.replace("V", V), kind="shell").problems
    problem = problem or problems[0]
    assert (problem.id, problem.severity) == ("unquotable-variable", "error")
    assert message in problem.message
    assert problem.message.startswith(f"`{V}` ")
    assert problem.help
    start = command.index("V")
    assert (problem.start, problem.end) == (start, start + len(V))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("bash -c 'echo V'", "code that `bash` reads"),
        ('sudo sh -ec "echo V"', "code that `sh` reads"),
        ("find . -exec sh -c 'rm V' \\;", "code that `sh` reads"),
        ("python3 -c 'print(\"V\")'", "code that `python` reads"),
        ("perl -ne 'print if /V/' f", "code that `perl` reads"),
        ("node -e V", "code that `node` reads"),
        ("su - me -c 'V'", "code that `su` reads"),
        ('psql db -c "select V"', "code that `psql` reads"),
        ("bash <<EOF\nV\nEOF", "code that `bash` reads"),
        ("python3 - <<EOF\nV\nEOF", "code that `python` reads"),
        ("bash <<< V", "code that `bash` reads"),
        ("eval V", "evaluated again by a shell"),
        ('eval "x=V"', "evaluated again by a shell"),
        ("trap 'rm V' EXIT", "evaluated again by a shell"),
        ("ssh host rm V", "by the remote shell"),
        ("ssh -p 22 host <<EOF\nV\nEOF", "by the remote shell"),
        ("[[ V -gt 3 ]]", "compared as a number"),
        ("[[ a == V || V -eq 1 && b ]]", "compared as a number"),
        ("let x=V", "arithmetic"),
        ("a[V]=1", "array subscript"),
        ("a=([V]=1)", "array subscript"),
        ("declare V", "names a shell variable"),
        ("read V", "names a shell variable"),
        ("unset V", "names a shell variable"),
        ("printf -v V x", "names a shell variable"),
        ("[ -v V ]", "names a variable"),
        ("declare -i n=V", "becomes a number, a list or a reference"),
        ("declare -a n=V", "becomes a number, a list or a reference"),
        ("declare -i n; n=V", "becomes a number, a list or a reference"),
        ("n=(1); declare n=V", "becomes a number, a list or a reference"),
        ("RANDOM=V", "becomes a number, a list or a reference"),
        ("BASH_ENV=V bash -c true", "run by every shell"),
        ("env BASH_ENV=V make", "run by every shell"),
        ("export PROMPT_COMMAND=V", "run by every shell"),
        ("source /dev/stdin <<< V", "evaluated again by a shell"),
        (". /dev/stdin <<EOF\nV\nEOF", "evaluated again by a shell"),
        ("bash /dev/stdin <<< V", "code that `bash` reads"),
        ("V", "the name of a command"),
        ("V --version", "the name of a command"),
        ('A=1 "V" x', "the name of a command"),
        ("if x; then ! V; fi", "the name of a command"),
        ("for x in a; do V; done", "the name of a command"),
        ("echo $(V)", "the name of a command"),
        ("sudo -u me timeout 5 V x", "the name of a command"),
        ("env A=1 V x", "the name of a command"),
        ("exec V", "the name of a command"),
        ("time -p V", "the name of a command"),
        ("ls | xargs -n 1 V", "the name of a command"),
        ("find . -exec V {} +", "the name of a command"),
        ("git-V", "the name of a command"),
    ],
)
def test_value_read_as_code_is_an_error(command: str, message: str) -> None:
    """Quoting protects a value in one shell; a second interpreter would execute it."""
    problems = parse(re.sub(r"\bV\b", lambda _: V, command), kind="shell").problems
    assert [(problem.id, problem.severity) for problem in problems] == [("variable-in-code", "error")]
    assert message in problems[0].message
    assert problems[0].help


def test_a_value_of_the_environment_may_name_a_command() -> None:
    """The user who sets the environment already chooses the programs with `PATH`."""
    assert parse("${env.PYTHON} -m pytest", kind="shell").problems == ()
    (problem,) = parse("sh -c '${env.PYTHON} -m pytest'", kind="shell").problems
    assert problem.id == "variable-in-code"


def test_with_a_dialect_a_value_may_name_a_command_without_arguments() -> None:
    """The check of its characters does not exclude `eval`, which would execute other values."""
    for command, severity in ((f"{V} -v; echo {V}", "warning"), (f'{V} "$(echo {V})"', "error")):
        (problem,) = parse(command, kind="shell", is_open=True).problems
        assert problem.severity == severity


@pytest.mark.parametrize(
    "command",
    [
        "jq '.a == \"V\"' f",
    ],
)
def test_value_that_a_program_may_misread_is_a_warning(command: str) -> None:
    """The use may be intended, so it is no error."""
    problem = problem_of(command)
    assert (problem.id, problem.severity) == ("variable-in-code", "warning")


@pytest.mark.parametrize(
    "command",
    [
        "awk '/V/' f",
        "sed 's/a/V/' f",
        "sed -n -e 's/V//p' f",
        "make X=V",
        "n=V; echo $((n + 1))",
        "n=V\n[[ $n -gt 3 ]]",
        'n=V; eval "$n"',
        "n=V; echo ${!n}",
        "n=V; unset $n",
    ],
)
def test_value_that_reaches_code_is_an_error(command: str) -> None:
    """The error names the check that proves the value to be data."""
    problem = problem_of(command)
    assert (problem.id, problem.severity) == ("variable-in-code", "error")
    assert problem.help


@pytest.mark.parametrize("shell", bash, ids=shell_name)
@pytest.mark.parametrize(
    ("command", "value"),
    [
        ("[[ V -gt 3 ]]", "a[$(:>pwned)]"),
        ("echo $((V))", "a[$(:>pwned)]"),
        ("a[V]=1", "$(:>pwned)"),
        ("declare -i n=V", "a[$(:>pwned)]"),
        ("declare -a n=V", "($(:>pwned))"),
        ("declare V", "a[$(:>pwned)]=1"),
        ("[ -v V ]", "a[$(:>pwned)]"),
        ("printf -v V x", "a[$(:>pwned)]"),
        (": >&V", "x$(:>pwned)"),
        ("n=V; echo $((n))", "a[$(:>pwned)]"),
        ("V ':>pwned'", "eval"),
    ],
)
def test_rejected_command_runs_the_value_in_bash(
    command: str, value: str, shell: str, tmp_path: Path
) -> None:
    """The errors are justified: bash executes the value although it is quoted as a word."""
    quoted = "'" + value + "'"
    if "$((V))" in command:
        quoted = value
    run(shell, command.replace("V", quoted), tmp_path)
    # Bash 5.3 reads a descriptor as text; the version that runs a loop is unknown at compile time.
    assert (tmp_path / "pwned").exists() or (command == ": >&V" and bash_version(shell) >= (5, 3))
    assert problem_of(command).id in ("variable-in-code", "unquotable-variable")


def bash_version(shell: str) -> tuple[int, int]:
    """Major and minor version of a bash."""
    words = [shell, "-c", 'echo "${BASH_VERSINFO[@]:0:2}"']
    major, minor = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return int(major), int(minor)


# --- limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("opening", ["$(", '"$(', "( ", "${X:-", "((", "case x in (x) ", "[[ ( "])
def test_deep_nesting_is_an_error(opening: str) -> None:
    """Thousands of open brackets give a problem, quickly and without a crash."""
    problems = parse(opening * 5000 + V, kind="shell").problems
    assert [problem.id for problem in problems] == ["unquotable-variable"]


def test_long_command_is_parsed_in_one_pass() -> None:
    """A megabyte of shell text with a thousand variables."""
    line = f"echo 'some text' \"more $X text\" {V} # it's\n"
    template = parse(line * 1000 + "x" * 1_000_000, kind="shell")
    assert template.problems == ()
    assert len(template.variables) == 1000


@settings(max_examples=tried(100), deadline=None)
@given(tokens=st.one_of(st.text(), st.text("'\"`\\${}()<>|&;#\n EOFV[]=cases-in ", max_size=60)))
def test_any_text_is_quoted_or_rejected(tokens: str) -> None:
    """The parser never raises, and every data variable is quoted or rejected."""
    template = parse(f"{tokens}{V}{tokens}{V}".replace("\0", ""), kind="shell")
    errors = {problem.start for problem in template.problems if problem.severity == "error"}
    for variable in template.variables:
        assert variable.quoting != "none" or variable.start in errors or not variable.is_data
