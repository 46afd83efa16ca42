"""Calls of tools and tasks: the arguments of the effect, and errors found before execution."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from flow_texts import findings, marks
from hypothesis import given, settings
from hypothesis import strategies as st

from llc.frontend.compile import compile_text
from llc.frontend.expand.expansion import Environment
from llc.frontend.tasks.registry import TaskRegistry, parse_declaration
from llc.ir.compile_options import CompileOptions
from llc.ir.diagnostics import CompileError, render_all
from llc.ir.verify import verify
from llc.vm.code.emit import emit
from llc.vm.machine.machine import Done, Effect
from llc.vm.tiered import Machine

TOOLS = """
tools:
  - name: math:add
    parameters: {x: number, y: {type: number, default: 1}}
    command: [add]
    on_unknown: fail
    timeout: 5
  - name: my:any
    parameters: [a, b]
    python: "tools:any"
  - name: my:late
    parameters:
      first: {type: string, required: false}
      second: string
    python: "tools:late"
  - name: both
    parameters: [x]
    python: "tools:both"
"""
TASK = """<task type="atomic" name="{name}">
  <inputs><input name="text"/><input name="tone" from="mood"/></inputs>
  <instructions>{{{{text}}}} in {{{{tone}}}}</instructions>
</task>
"""


@pytest.fixture
def project(tmp_path: Path) -> str:
    """A project with tools and tasks."""
    folder = tmp_path / ".loops"
    (folder / "tasks").mkdir(parents=True)
    (folder / "tools.yaml").write_text(TOOLS)
    for name in ("user:say", "both"):
        (folder / "tasks" / f"{name.replace(':', '-')}.xml").write_text(TASK.format(name=name))
    return str(folder)


def performed_effects(
    text: str, folder: str | None = None, declare: Iterable[str] = ()
) -> list[tuple[str, Any]]:
    """Kind and arguments of each effect of a program; effect number n is answered with n."""
    overrides = CompileOptions(folder=folder, declare=tuple(declare))
    program = compile_text(text, "test.sexp", overrides).program
    assert [diagnostic for diagnostic in verify(program) if diagnostic.is_error] == []
    machine = Machine(emit(program), fuel=1_000_000)
    effects = []
    stop = machine.resume()
    while isinstance(stop, Effect):
        effects.append((stop.kind, stop.args))
        stop = machine.resume({"value": stop.seq, "result": {"status": "COMPLETE"}}, stop.seq)
    assert isinstance(stop, Done), stop
    return effects


def call_arguments(text: str, folder: str | None = None, declare: Iterable[str] = ()) -> Any:
    """Arguments of the only tool or task effect of a program."""
    ((kind, args),) = performed_effects(text, folder, declare)
    return args["inputs"] if kind == "task" else args["args"]


# --- arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(math:add (x 2) (y 3))", {"x": 2, "y": 3}),
        ("(math:add (y 3) (x 2))", {"x": 2, "y": 3}),
        ("(math:add 2 3)", {"x": 2, "y": 3}),
        ("(math:add 2 (y 3))", {"x": 2, "y": 3}),
        ("(math:add (y 3) 2)", {"x": 2, "y": 3}),
        ("(math:add 2)", {"x": 2, "y": 1}),
        ("(math:add 2 null)", {"x": 2, "y": 1}),
        ("(math:add (+ 1 1))", {"x": 2, "y": 1}),
        ("(let ((x 5)) (math:add (x x)))", {"x": 5, "y": 1}),
        ("(my:any (a 'word) (b (dict (k (list 1 null)))))", {"a": "word", "b": {"k": [1, None]}}),
        ("(my:any null '())", {"a": None, "b": []}),
        ('(my:late (second "s"))', {"second": "s"}),
        ('(my:late null "s")', {"second": "s"}),
        ('(my:late "f" "s")', {"first": "f", "second": "s"}),
        ("(call math:add 2 3)", {"x": 2, "y": 3}),
        ("(call math:add (x 10) (y 5))", {"x": 10, "y": 5}),
    ],
)
def test_arguments_are_positional_or_named(project: str, text: str, expected: Any) -> None:
    """Positional arguments follow the declared order; defaults fill the rest."""
    actual = call_arguments(text, project)
    assert actual == expected
    assert list(actual) == list(expected)


def test_arguments_are_evaluated_in_source_order(project: str) -> None:
    """Arguments are evaluated from left to right, whatever the declared order."""
    text = """
      (define seen nil)
      (define (look x) (set! seen (cons x seen)) x)
      (my:any (b (look 1)) (a (look 2)))
      (my:any (a (reverse seen)) (b 0))
    """
    assert [args["args"] for _, args in performed_effects(text, project)] == [
        {"a": 2, "b": 1},
        {"a": [1, 2], "b": 0},
    ]


def test_tool_is_a_first_class_function(project: str) -> None:
    """A tool as a value takes its declared parameters in order; optional ones may be omitted."""
    text = "(map math:add '(1 2)) (apply math:add '(3 4)) (map math:add '(5) '(6)) (map (math:add item) '(7))"
    rows = [args["args"] for _, args in performed_effects(text, project)]
    assert [(row["x"], row["y"]) for row in rows] == [(1, 1), (2, 1), (3, 4), (5, 6), (7, 1)]


def test_task_is_a_first_class_function(project: str) -> None:
    """A task as a value takes its parameters first, then the reserved arguments."""
    text = '(define (run f) (f "a" "b" (list "x.py"))) (run user:say)'
    ((kind, args),) = performed_effects(text, project)
    assert (kind, args["inputs"], args["files"]) == ("task", {"text": "a", "tone": "b"}, ["x.py"])


def test_reserved_arguments_are_not_inputs(project: str) -> None:
    """Files, context and history of a task are reserved arguments; settings are a map or a list of pairs."""
    text = """(user:say (context '((inherit_context "none"))) (text "a") (files (list "x.py")) (tone "b")
      (history_config (dict (history_turns_to_include 3))))"""
    ((_, args),) = performed_effects(text, project)
    assert args["inputs"] == {"text": "a", "tone": "b"}
    assert args["files"] == ["x.py"]
    assert args["context"] == {"inherit_context": "none"}
    assert args["history_config"] == {"history_turns_to_include": 3}


def test_declared_parameter_overrides_reserved_name() -> None:
    """A task parameter named `files` takes precedence over the reserved argument."""
    assert call_arguments('(t (files "mine"))', declare=["task t(files)"]) == {"files": "mine"}
    assert call_arguments('(t (files "mine"))', declare=["t"]) == {"files": "mine"}


def test_missing_input_is_read_from_scope(project: str) -> None:
    """`from` names the variable that supplies an input that the call omits."""
    assert call_arguments('(let ((mood "joy")) (user:say "a"))', project) == {"text": "a", "tone": "joy"}
    assert call_arguments('(let ((mood "joy")) (user:say "a" "grief") mood)', project) == {
        "text": "a",
        "tone": "grief",
    }


def test_effect_contains_the_tool_definition(project: str) -> None:
    """The definition of a tool is fixed when the program is compiled."""
    ((_, args),) = performed_effects("(math:add 1)", project)
    assert args["definition"] == {"argv": [["add"]]}
    assert (args["timeout_s"], args["on_unknown"]) == (5, "fail")
    ((_, args),) = performed_effects('(user:say "a" "b")', project)
    assert args["definition"]["instructions"] == "{{text}} in {{tone}}"


def test_declaration_without_parameters_accepts_any_arguments(project: str) -> None:
    """Each operand is a name with its value, also if the name has another meaning in the program."""
    assert call_arguments("(far:away (x 1) (list 2))", declare=["far:away"]) == {"x": 1, "list": 2}
    assert call_arguments("(let ((query 5)) (far:away (query query)))", declare=["far:away"]) == {"query": 5}
    assert call_arguments("(map far:away (list (dict (a 1))))", declare=["far:away"]) == {"a": 1}


def test_declared_parameters_accept_positional_arguments() -> None:
    """`--declare 'name(x,y)'` gives the parameters an order."""
    assert call_arguments("(math:add 1 (y 2))", declare=["math:add(x, y)"]) == {"x": 1, "y": 2}


def test_sources_contain_used_declaration_files(project: str) -> None:
    """The sources of a program are the files that declare its tools and tasks, and no others."""
    program = compile_text("(math:add 1)", "test.sexp", CompileOptions(folder=project)).program
    assert [Path(source.path).name for source in program.sources] == ["test.sexp", "tools.yaml"]
    program = compile_text('(user:say "a" "b")', "test.sexp", CompileOptions(folder=project)).program
    assert [Path(source.path).name for source in program.sources] == ["test.sexp", "user-say.xml"]


NAMES = ("alpha", "beta", "gamma", "delta")


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_positional_and_named_arguments_are_equivalent(data: st.DataObject) -> None:
    """Any split into positional and named arguments, in any order of names, gives the same effect."""
    values = data.draw(st.lists(st.integers(), min_size=4, max_size=4))
    count = data.draw(st.integers(0, 4))
    named = data.draw(st.permutations(list(zip(NAMES, values, strict=True))[count:]))
    operands = [str(value) for value in values[:count]]
    for name, value in named:
        operands.insert(data.draw(st.integers(0, len(operands))), f"({name} (+ 0 {value}))")
    declare = [f"far({','.join(NAMES)})"]
    actual = call_arguments(f"(far {' '.join(operands)})", declare=declare)
    assert list(actual.items()) == list(zip(NAMES, values, strict=True))


# --- name resolution ----------------------------------------------------------------------------


def test_lexical_binding_shadows_a_tool(project: str) -> None:
    """A variable or function of the program hides a tool of the same name."""
    assert performed_effects("(define (math:add x) (* x x)) (math:add 3)", project) == []
    assert performed_effects("(let ((math:add +)) (call math:add 1 2))", project) == []


def test_call_form_accepts_functions(project: str) -> None:
    """`(call f …)` with a function in scope, or an expression that returns one, is an ordinary call."""
    assert (
        performed_effects(
            "(define (f x) x) (assert (= (call f 1) 1)) (call (lambda (y) y) 2) (call + 1 2)", project
        )
        == []
    )


def test_tool_takes_precedence_over_task(project: str) -> None:
    """The shadowed task of the same name is reported once."""
    ((kind, _),) = performed_effects("(both 1)", project)
    assert kind == "tool"
    declared = Environment(declared=TaskRegistry(project))
    diagnostics = findings("(both 1) (both 2)", declared)
    assert [item.id for item in diagnostics] == ["tool-before-task"]
    text = '(defatom math:add (params x) (instructions "{{x}}")) (math:add 1)'
    assert [item.id for item in findings(text, declared)] == ["tool-before-task"]


def test_tool_name_aliases() -> None:
    """`system_x` is `system:x`."""
    ((kind, args),) = performed_effects('(system_run_script "true")')
    assert (kind, args) == ("shell", {"command": "true"})


# --- errors -------------------------------------------------------------------------------------

WRONG = """
(math:ad (x 1))                         ; error: unknown-task
(call nobody (x 1))                     ; error: unknown-task
(no:such "value")                       ; error: unknown-task
(no:other (x (car 5)) (y (unbound 1)))  ; error: unknown-task
(math:add (x 1) (z 2))                  ; error: unknown-parameter
(math:add)                              ; error: missing-parameter
(math:add (x 1) (x 2))                  ; error: repeated-key
(math:add 1 (x 2))                      ; error: repeated-key
(math:add 1 2 3 4)                      ; error: too-many-arguments
(math:add "1")                          ; error: wrong-type
(math:add (x true))                     ; error: wrong-type
(math:add (x null))                     ; error: wrong-type
(math:add (x 1 2))                      ; error: bad-argument
(far:away 1)                            ; error: no-order
(user:say "a")                          ; error: missing-parameter
(user:say "a" "b" (files "x.py"))       ; error: wrong-type
(user:say "a" "b" (files '(1)))         ; error: wrong-type
(user:say "a" "b" (context 5))          ; error: wrong-type
(user:say "a" "b" (context '((inherit full))))        ; error: unknown-setting
(user:say "a" "b" (context (dict (inherit_context "all"))))  ; error: unknown-setting
(user:say "a" "b" (context (dict (inherit (car '(1))))))     ; error: unknown-setting
(user:say "a" "b" (history_config '((history_turns_to_include -1))))  ; error: unknown-setting
(math:add (x 1) (files (list "a")))     ; error: unknown-parameter
(system:write_file (content 5) (file_path "x"))  ; error: wrong-type
(math:add . 5)                          ; error: dotted-list
"""


def test_wrong_calls_are_compile_errors(project: str) -> None:
    """All errors are reported together, each on its line."""
    declared = TaskRegistry(project, ["far:away"])
    diagnostics = findings(WRONG, Environment(declared=declared))
    actual = [(item.span.line, item.id) for item in diagnostics if item.span is not None and item.is_error]
    expected = [(mark.line, mark.text) for mark in marks(WRONG)]
    assert set(expected) <= set(actual)
    assert set(actual) - set(expected) == {(5, "unbound-name")}


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("(math:ad (x 1))", "did you mean `math:add`?"),
        ("(math:add (x 1) (yy 2))", "did you mean `y`?"),
        ("(math:add (xx 2))", "did you mean `x`?"),
        ("(math:add)", "write (math:add (x …) [(y …)])"),
        ("(wholly:unheard-of 1)", "--declare"),
    ],
)
def test_wrong_call_has_a_fix(project: str, text: str, fix: str) -> None:
    """The help contains the nearest name or the syntax of the call."""
    (diagnostic,) = findings(text, Environment(declared=TaskRegistry(project)))
    assert diagnostic.help is not None
    assert fix in diagnostic.help


def test_argument_types_are_checked_at_run_time(project: str) -> None:
    """The fault names the parameter, the tool, the expected type and the value."""
    text = '(define (f x) (math:add x)) (try (f "5") (catch e (list (get e "kind") (get e "message"))))'
    program = compile_text(text, "test.sexp", CompileOptions(folder=project)).program
    stop = Machine(emit(program)).resume()
    assert isinstance(stop, Done)
    assert stop.value == ["type-error", '`x` of `math:add` must be a number, not "5"']


@pytest.mark.parametrize(
    "text",
    [
        '(user:say "a" "b" (files (string-append "x.py")))',
        '(user:say "a" "b" (files (list 5)))',
        '(user:say "a" "b" (context (+ 1 2)))',
        '(user:say "a" "b" (context (put (dict) "inherit" 5)))',
        '(user:say "a" "b" (history_config (list (list \'turns 5))))',
    ],
)
def test_invalid_task_settings_are_a_fault(project: str, text: str) -> None:
    """The fault occurs before the effect is performed."""
    program = compile_text(text, "test.sexp", CompileOptions(folder=project)).program
    stop = Machine(emit(program)).resume()
    assert getattr(stop, "kind", "") in ("type-error", "unknown-setting")


def test_failed_tool_is_a_fault(project: str) -> None:
    """The fault has the kind that the tool gives and the position of the call; `try` catches it."""
    text = """(define (f)
  (math:add 1))
(try (f) (catch e (list (get e "kind") (get e "message") (get e "span"))))"""
    machine = Machine(emit(compile_text(text, "test.sexp", CompileOptions(folder=project)).program))
    machine.resume()
    stop = machine.resume({"error": {"kind": "broken", "message": "no more"}})
    assert isinstance(stop, Done)
    assert stop.value == ["broken", "`math:add`: no more", "test.sexp:2:3"]


def test_a_failed_task_is_a_value(project: str) -> None:
    """A failed task raises no fault; the program reads its status."""
    text = '(get (user:say "a" "b") "status")'
    machine = Machine(emit(compile_text(text, "test.sexp", CompileOptions(folder=project)).program))
    machine.resume()
    stop = machine.resume({"result": {"status": "FAILED", "content": "", "notes": {}}})
    assert isinstance(stop, Done)
    assert stop.value == "FAILED"


def test_invalid_declaration_is_reported_once(tmp_path: Path) -> None:
    """The error is reported in the file; calls of names that it may declare are not errors."""
    folder = tmp_path / ".loops"
    folder.mkdir()
    (folder / "tools.yaml").write_text("tools:\n  - name: my:tool\n    comand: [x]\n")
    with pytest.raises(CompileError) as caught:
        compile_text("(my:tool (x 1)) (my:other 2)", "test.sexp", CompileOptions(folder=str(folder)))
    diagnostics = caught.value.diagnostics
    assert {item.span.path for item in diagnostics if item.span is not None} == {str(folder / "tools.yaml")}
    assert "comand" in render_all(diagnostics, caught.value.sources)


def test_a_program_without_calls_reads_no_declarations(tmp_path: Path) -> None:
    """Errors in the tools of a project are reported only to programs that use tools."""
    (tmp_path / "tools.yaml").write_text("tools: [")
    compile_text(
        "(define (f x) (g x)) (define (g x) x) (f 1)", "t.sexp", CompileOptions(folder=str(tmp_path))
    )


@pytest.mark.parametrize("text", ["", "a b c", "x(", "x(1)", "x(a,a)", "x)", "(x)", "x(a b)", "1x" * 100])
def test_declare_option_is_validated(text: str) -> None:
    """`--declare` takes a name, or a name with parameters."""
    with pytest.raises(ValueError, match=r"."):
        parse_declaration(text)
