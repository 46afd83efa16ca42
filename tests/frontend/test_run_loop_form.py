"""`run-loop`: resolution of the loop, errors and expansion."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linked_programs import FIX, World, drive, program_of, shell, write

from llc.frontend.compile import compile_file
from llc.ir.compile_options import CompileOptions
from llc.ir.diagnostics import CompileError, Diagnostic
from llc.vm.values.faults import Fault


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, fix__yaml=FIX)
    return tmp_path


def value_of(project: Path, text: str, world: World | None = None) -> Any:
    write(project, f__sexp=text)
    return drive(program_of("f.sexp"), world or World())


def errors(project: Path, text: str) -> list[Diagnostic]:
    write(project, f__sexp=text)
    with pytest.raises(CompileError) as caught:
        compile_file("f.sexp")
    return [finding for finding in caught.value.diagnostics if finding.is_error]


# --- values -----------------------------------------------------------------------------------


def test_value_describes_the_outcome(project: Path) -> None:
    """The value is a map of status, reason, last state, iterations, steps, and captured texts."""
    assert value_of(project, '(run-loop "fix")') == {
        "status": "success",
        "terminated_by": "terminal",
        "final_state": "done",
        "iterations": 2,
        "steps": 4,
        "captured": {"said": "nothing"},
    }


def test_failed_loop_is_a_value(project: Path) -> None:
    """A failure terminal and a limit are not faults."""
    write(project, bad__yaml="name: bad\ninitial: a\nstates:\n  a: {terminal: true, status: failure}\n")
    outcome = value_of(
        project,
        '(map (lambda (x) (list (get x "status") (get x "terminated_by")))'
        ' (list (run-loop "bad") (run-loop "fix" (max-iterations 1))))',
    )
    assert outcome == [["failure", "terminal"], ["limit", "max_iterations"]]


def test_unset_captures_are_absent(project: Path) -> None:
    """A state that did not run captured nothing."""
    write(
        project,
        two__yaml="name: two\ninitial: a\nstates:\n  a: {action: echo a, capture: x, next: c}\n"
        "  b: {action: echo b, capture: y, next: c}\n  c: {terminal: true}\n",
    )
    assert value_of(project, '(get (run-loop "two") "captured")') == {"x": "a"}


def test_unrouted_error_is_a_fault(project: Path) -> None:
    """The fault can be caught, and its span is in the loop's file."""
    write(
        project,
        err__yaml="name: err\ninitial: a\nstates:\n  a: {action: exit 7, on_success: b}\n"
        "  b: {terminal: true}\n",
    )
    caught = '(try (run-loop "err") (catch e (get e "kind")))'
    assert value_of(project, caught) == "unrouted-verdict"
    fault = value_of(project, '(run-loop "err")')
    assert isinstance(fault, Fault)
    assert fault.span is not None
    assert fault.span[0] == ".loops/err.yaml"


def test_equal_uses_share_one_function(project: Path) -> None:
    """Other constants or other limits give another function."""
    text = """
    (define (a x) (run-loop "fix" (context (what "one") (flag x))))
    (define (b y) (run-loop "fix" (context (flag y) (what "one"))))
    (define (c) (run-loop "fix" (context (what "two"))))
    (define (d) (run-loop "fix" (max-iterations 2)))
    (list (a ".") (b ".") (c) (d))
    """
    write(project, f__sexp=text)
    loops = program_of("f.sexp").meta.loops
    assert [loop.name for loop in loops] == ["fix", "fix.2", "fix.3"]


def test_scope_of_a_flow_with_loops(project: Path) -> None:
    """The union of the loops' scopes; the complete project if the flow itself acts."""
    for name, scope in (("a", "[src/a, doc]"), ("b", "[src/b, doc]")):
        write(project, **{f"{name}__yaml": FIX.replace("name: fix", f"name: {name}\nscope: {scope}")})
    write(project, f__sexp='(list (run-loop "a") (run-loop "b"))')
    assert program_of("f.sexp").meta.scope == ("src/a", "doc", "src/b")
    write(project, f__sexp='(list (run-loop "a") (run-loop "fix"))')
    assert program_of("f.sexp").meta.scope == (".",)
    write(project, f__sexp='(list (run-loop "a") (system:execute_shell_command "ls"))')
    assert program_of("f.sexp").meta.scope == (".",)


def test_files_of_loops_are_sources(project: Path) -> None:
    """A change of any of these files changes the program."""
    write(project, lib__sexp='(define (go) (run-loop "fix"))', f__sexp='(import "lib.sexp") (go)')
    program = program_of("f.sexp")
    assert [source.path for source in program.sources] == ["f.sexp", "lib.sexp", ".loops/fix.yaml"]
    write(project, fix__yaml=FIX.replace("echo", "printf"))
    assert program_of("f.sexp") != program


def test_model_options_apply_to_inner_loops(project: Path) -> None:
    """With `--no-llm` an inner loop judges slash commands by exit code; a flow without loops rejects the
    option.
    """
    write(
        project,
        ask__yaml="name: ask\ninitial: a\nstates:\n"
        "  a: {action: /do it, on_success: b, on_failure: b}\n  b: {terminal: true}\n",
        f__sexp='(run-loop "ask")',
    )
    kinds = {True: {"agent"}, None: {"agent", "evaluate"}}
    for off, expected in kinds.items():
        program = program_of("f.sexp", CompileOptions(llm_enabled=False if off else None))
        performed = {
            state.exit.kind for f in program.functions for state in f.states if hasattr(state.exit, "kind")
        }
        assert performed == expected
    write(project, f__sexp="1")
    with pytest.raises(CompileError, match="runs no loop"):
        compile_file("f.sexp", CompileOptions(llm_enabled=False))


# --- loop lookup ------------------------------------------------------------------------------


def test_path_is_relative_to_its_file(project: Path) -> None:
    """Paths in an imported file are relative to that file."""
    (project / "sub").mkdir()
    (project / "sub" / "own.yaml").write_text(FIX.replace("name: fix", "name: own"))
    (project / "sub" / "lib.sexp").write_text('(define (go) (get (run-loop "./own.yaml") "final_state"))')
    assert value_of(project, '(import "sub/lib.sexp") (go)') == "done"


def test_configuration_file_is_not_suggested_as_loop(project: Path) -> None:
    """The configuration of a project is in the folder of its loops."""
    write(project, tools__yaml="tools: []\n", config__yaml="{}\n")
    (diagnostic,) = errors(project, '(run-loop "other")')
    assert diagnostic.help == "loops here: `fix`"


MISUSES = [
    ('(run-loop "fux")', "unknown-loop", '"fux"', "did you mean `fix`?"),
    ('(run-loop "./fux.yaml")', "unknown-file", '"./fux.yaml"', None),
    ('(run-loop ".loops/fux.yaml")', "unknown-file", '".loops/fux.yaml"', "did you mean `fix.yaml`?"),
    ('(run-loop "flow")', "unknown-loop", '"flow"', "`flow` is a flow"),
    ('(define name "fix") (run-loop name)', "bad-form", "name", "as a literal"),
    ("(run-loop)", "bad-form", "(run-loop)", "write (run-loop"),
    ('(run-loop "fix" (contxt (what 1)))', "unknown-clause", "(contxt (what 1))", "did you mean `context`?"),
    ('(run-loop "fix" what)', "bad-clause", "what", "write (run-loop"),
    ('(run-loop "fix" (context (what 1)) (context (flag 1)))', "repeated-clause", "(context (flag 1))", None),
    ('(run-loop "fix" (context (what 1) (what 2)))', "repeated-key", "what", None),
    ('(run-loop "fix" (context what))', "bad-clause", "what", "write (run-loop"),
    ('(run-loop "fix" (context (waht 1)))', "unknown-context", "waht", "did you mean `what`?"),
    ('(run-loop "fix" (context (waht (+ 1 2))))', "unknown-context", "waht", "did you mean `what`?"),
    ('(run-loop "fix" (max-iterations 0))', "bad-count", "0", "(max-iterations 5)"),
    ('(run-loop "fix" (max-iterations (+ 1 2)))', "bad-count", "(+ 1 2)", "(max-iterations 5)"),
    ('(run-loop "fix" (context (what (nothing))))', "unbound-name", "nothing", None),
    ('(map run-loop (list "fix"))', "form-as-value", "run-loop", None),
]


@pytest.mark.parametrize(("text", "id", "place", "help"), MISUSES, ids=[text for text, *_ in MISUSES])
def test_misuse_is_an_error(project: Path, text: str, id: str, place: str, help: str | None) -> None:
    """The diagnostic is given at compile time and marks the wrong part."""
    (project / ".loops" / "flow.sexp").write_text("1")
    diagnostics = errors(project, text)
    assert [finding.id for finding in diagnostics] == [id], diagnostics
    span = diagnostics[0].span
    assert span is not None
    assert text[span.column - 1 : span.end_column - 1] == place
    assert help is None or help in (diagnostics[0].help or "")


def test_errors_of_flow_and_loop_are_reported_together(project: Path) -> None:
    """Errors in the loop have spans in its file."""
    write(
        project,
        fix__yaml=FIX.replace("next: check", "next: chekc").replace(
            "echo ${context.what}", "echo ${context.waht}"
        ),
    )
    diagnostics = errors(project, '(list (run-loop "fix") (car 1 2))')
    assert sorted((finding.id, finding.span and finding.span.path) for finding in diagnostics) == [
        ("unknown-state", ".loops/fix.yaml"),
        ("unknown-variable", ".loops/fix.yaml"),
        ("wrong-arity", "f.sexp"),
    ]


@pytest.mark.parametrize(
    ("content", "id"),
    [
        (b"", "empty-document"),
        (b"\xff", "not-utf-8"),
        (b"a: [", "yaml-syntax"),
        (b"paradigm: gaol\n", "unknown-paradigm"),
        (b"\x00", "control-character"),
    ],
)
def test_invalid_loop_file_is_an_error(project: Path, content: bytes, id: str) -> None:
    """The error is the one of compiling the file itself."""
    (project / ".loops" / "fix.yaml").write_bytes(content)
    assert id in [finding.id for finding in errors(project, '(run-loop "fix")')]


def test_folder_as_loop_is_an_error(project: Path) -> None:
    """The error is at the form that names the folder."""
    (project / ".loops" / "dir.yaml").mkdir()
    (diagnostic,) = errors(project, '(run-loop "dir")')
    assert (diagnostic.id, diagnostic.message) == (
        "cannot-run",
        "cannot run `.loops/dir.yaml`: cannot read `.loops/dir.yaml`: it is a folder",
    )


# --- cycles of files --------------------------------------------------------------------------

CALLER = "name: a\ninitial: s\nstates:\n  s: {call: ../lib.sexp#go, next: t}\n  t: {terminal: true}\n"


@pytest.mark.parametrize("start", ["f.sexp", ".loops/a.yaml"])
def test_cycle_of_files_is_an_error(project: Path, start: str) -> None:
    """The message shows the chain."""
    write(project, a__yaml=CALLER, lib__sexp='(define (go) (run-loop "a"))', f__sexp='(run-loop "a")')
    with pytest.raises(CompileError) as caught:
        compile_file(start)
    (diagnostic,) = [finding for finding in caught.value.diagnostics if finding.is_error]
    assert diagnostic.id == "circular-run"
    assert ".loops/a.yaml → lib.sexp → .loops/a.yaml" in diagnostic.message


def test_flow_that_runs_itself_through_a_loop_is_an_error(project: Path) -> None:
    """A loop cannot call a function of the flow that runs it."""
    write(project, a__yaml=CALLER)
    (project / "lib.sexp").write_text('(define (go) 1) (define (again) (run-loop "a"))')
    with pytest.raises(CompileError, match="runs itself"):
        compile_file("lib.sexp")


def test_cycle_of_symbolic_links_is_an_error(project: Path) -> None:
    """Symbolic links are resolved before files are compared."""
    (project / "self").symlink_to(".")
    write(project, f__sexp='(run-loop "./loop.yaml")', lib__sexp='(define (go) (run-loop "self/loop.yaml"))')
    (project / "loop.yaml").write_text(CALLER.replace("../lib", "self/lib"))
    with pytest.raises(CompileError, match="runs itself"):
        compile_file("f.sexp")


def test_files_may_run_the_same_loop(project: Path) -> None:
    """Two files that run the same loop are not a cycle."""
    write(
        project,
        a__yaml=CALLER,
        lib__sexp='(define (go) (get (run-loop "fix") "status"))',
        f__sexp='(list (get (run-loop "a") "status") (get (run-loop "fix") "status"))',
    )
    assert drive(program_of("f.sexp"), World()) == ["success", "success"]


# --- context ----------------------------------------------------------------------------------

SAY = """\
name: say
initial: a
context: {what: x, wrap: ":${context.what}:"}
states:
  a:
    action: 'printf %s ACTION'
    capture: out
    next: b
  b: {terminal: true}
"""


def action_output(project: Path, action: str, value: str) -> str:
    """Output of an action of a loop for a context value that the flow computes."""
    write(project, say__yaml=SAY.replace("ACTION", action))
    literal = value.replace("\\", "\\\\").replace('"', '\\"')
    text = f'(get-field (run-loop "say" (context (what (string-append "" "{literal}")))) "captured.out")'
    output = value_of(project, text)
    assert isinstance(output, str), output
    return output


HOSTILE = [
    "$(touch hacked)",
    "`touch hacked`",
    "'; touch hacked; '",
    '"; touch hacked; "',
    "a\ntouch hacked\n b",
    "; touch hacked",
    "${x:-$(touch hacked)}",
    "\\",
    "\\'",
    "!!",
    "* ? [a]",
    "~",
    "-n",
    "$((1+1))",
    "${context.wrap}",
    "${captured.out.output}",
    "a b  c",
]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_computed_value_is_data(project: Path, value: str) -> None:
    """In a command the value is quoted for its position: bare, in single or double quotes, inside other
    context.
    """
    for action in ("${context.what}", '"${context.what}"', "''${context.what}''", "${context.wrap}"):
        expected = f":{value}:" if "wrap" in action else value
        assert action_output(project, action, value) == expected.removesuffix("\n")
    assert not (project / "hacked").exists()


@settings(max_examples=25, deadline=None)
@given(value=st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20))
def test_computed_value_is_passed_unchanged(value: str) -> None:
    """bash gets any text as one word."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), say__yaml=SAY.replace("ACTION", "${context.what}"))
        text = '(run-loop "./.loops/say.yaml" (context (what given)))'
        (Path(folder) / "f.sexp").write_text(text)
        program = program_of(f"{folder}/f.sexp", CompileOptions(arguments={"given": value}))
        world = World(lambda effect: shell(effect.args["command"]))
        # A value of --arg is a literal of the program, but not of the form.
        assert drive(program, world)["captured"]["out"] == value.removesuffix("\n")


def test_literal_is_spliced_like_a_command_line_value(project: Path) -> None:
    """A literal is the author's text: code that may contain variables; a number is a number."""
    write(project, say__yaml=SAY.replace("ACTION", "${context.wrap}"))
    assert (
        value_of(project, '(get-field (run-loop "say" (context (what "$((1+1))"))) "captured.out")') == ":2:"
    )
    variable = '(get-field (run-loop "say" (context (what "${loop.name}"))) "captured.out")'
    assert value_of(project, variable) == ":say:"
    assert value_of(project, '(get-field (run-loop "say" (context (what 7))) "captured.out")') == ":7:"


def test_a_computed_value_keeps_its_type(project: Path) -> None:
    """If a field consists of one variable. Fields of lists and maps can be selected."""
    write(
        project,
        n__yaml="name: n\ninitial: a\nstates:\n"
        "  a:\n    action: echo 3\n"
        "    evaluate: {type: output_numeric, operator: eq, target: '${context.n}'}\n"
        "    on_success: b\n    on_failure: c\n"
        "  b: {action: 'echo ${context.m.k} ${context.l.1} ${context.m}', capture: out, next: d}\n"
        "  c: {terminal: true, status: failure}\n  d: {terminal: true}\n",
    )
    text = '(define one 1) (run-loop "n" (context (n (+ 1 2)) (m (dict (k \'sym))) (l (list 1 (+ one 1)))))'
    assert value_of(project, text)["captured"] == {"out": 'sym 2 {"k": "sym"}'}


def test_function_as_context_value_is_an_error(project: Path) -> None:
    """Context values are plain data."""
    fault = value_of(project, '(run-loop "fix" (context (what (list car))))')
    assert isinstance(fault, Fault)
    assert fault.kind == "type-error"


def test_context_values_are_evaluated_in_source_order(project: Path) -> None:
    """The order of the context in the loop does not matter."""
    text = """
    (define log nil)
    (define (say x) (set! log (cons x log)) x)
    (run-loop "fix" (context (flag (say ".")) (what (say "b"))))
    (reverse log)
    """
    assert value_of(project, text) == [".", "b"]
