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


def asked(text: str, folder: str | None = None, declare: Iterable[str] = ()) -> list[tuple[str, Any]]:
    """The effects of a program, each answered with its number: the kind and the arguments."""
    overrides = CompileOptions(folder=folder, declare=tuple(declare))
    program = compile_text(text, "test.sexp", overrides).program
    assert [found for found in verify(program) if found.is_error] == []
    machine = Machine(emit(program), fuel=1_000_000)
    effects = []
    stop = machine.resume()
    while isinstance(stop, Effect):
        effects.append((stop.kind, stop.args))
        stop = machine.resume({"value": stop.seq, "result": {"status": "COMPLETE"}}, stop.seq)
    assert isinstance(stop, Done), stop
    return effects


def args(text: str, folder: str | None = None, declare: Iterable[str] = ()) -> Any:
    """The arguments of a program's only effect: of a tool or of a task."""
    ((kind, given),) = asked(text, folder, declare)
    return given["inputs"] if kind == "task" else given["args"]


# --- what is given ------------------------------------------------------------------------------


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
def test_arguments_are_given_by_name_or_in_order(project: str, text: str, expected: Any) -> None:
    """A tool gets its parameters by name, in the order in which it declares them, with its defaults."""
    given = args(text, project)
    assert given == expected
    assert list(given) == list(expected)


def test_arguments_are_evaluated_as_they_stand(project: str) -> None:
    """From left to right, whatever the declared order."""
    text = """
      (define seen nil)
      (define (look x) (set! seen (cons x seen)) x)
      (my:any (b (look 1)) (a (look 2)))
      (my:any (a (reverse seen)) (b 0))
    """
    assert [given["args"] for _, given in asked(text, project)] == [
        {"a": 2, "b": 1},
        {"a": [1, 2], "b": 0},
    ]


def test_a_tool_is_a_value(project: str) -> None:
    """A function of the declared parameters in order, of which optional ones may be left out."""
    text = "(map math:add '(1 2)) (apply math:add '(3 4)) (map math:add '(5) '(6)) (map (math:add item) '(7))"
    given = [given["args"] for _, given in asked(text, project)]
    assert [(row["x"], row["y"]) for row in given] == [(1, 1), (2, 1), (3, 4), (5, 6), (7, 1)]


def test_a_task_is_a_value_too(project: str) -> None:
    """With its parameters first; what a task takes beside them comes after."""
    text = '(define (run f) (f "a" "b" (list "x.py"))) (run user:say)'
    ((kind, given),) = asked(text, project)
    assert (kind, given["inputs"], given["files"]) == ("task", {"text": "a", "tone": "b"}, ["x.py"])


def test_reserved_keys_go_beside_the_inputs(project: str) -> None:
    """Files, context and history of a task; settings as a map or as a list of pairs."""
    text = """(user:say (context '((inherit_context "none"))) (text "a") (files (list "x.py")) (tone "b")
      (history_config (dict (history_turns_to_include 3))))"""
    ((_, given),) = asked(text, project)
    assert given["inputs"] == {"text": "a", "tone": "b"}
    assert given["files"] == ["x.py"]
    assert given["context"] == {"inherit_context": "none"}
    assert given["history_config"] == {"history_turns_to_include": 3}


def test_a_parameter_called_files_is_the_tasks_own() -> None:
    """A task parameter of a reserved name wins where the task declares it."""
    assert args('(t (files "mine"))', declare=["task t(files)"]) == {"files": "mine"}
    assert args('(t (files "mine"))', declare=["t"]) == {"files": "mine"}


def test_an_input_is_taken_from_around_a_call(project: str) -> None:
    """`from` names a variable that gives the value where the call gives none."""
    assert args('(let ((mood "joy")) (user:say "a"))', project) == {"text": "a", "tone": "joy"}
    assert args('(let ((mood "joy")) (user:say "a" "grief") mood)', project) == {"text": "a", "tone": "grief"}


def test_the_definition_stands_in_the_effect(project: str) -> None:
    """What a tool does is pinned when the program is compiled."""
    ((_, given),) = asked("(math:add 1)", project)
    assert given["definition"] == {"argv": [["add"]]}
    assert (given["timeout_s"], given["on_unknown"]) == (5, "fail")
    ((_, given),) = asked('(user:say "a" "b")', project)
    assert given["definition"]["instructions"] == "{{text}} in {{tone}}"


def test_what_is_declared_without_parameters_takes_any(project: str) -> None:
    """Every operand is a name with its value, also where the name means something else."""
    assert args("(far:away (x 1) (list 2))", declare=["far:away"]) == {"x": 1, "list": 2}
    assert args("(let ((query 5)) (far:away (query query)))", declare=["far:away"]) == {"query": 5}
    assert args("(map far:away (list (dict (a 1))))", declare=["far:away"]) == {"a": 1}


def test_a_declared_order_takes_positions() -> None:
    """`--declare 'name(x,y)'` gives names an order."""
    assert args("(math:add 1 (y 2))", declare=["math:add(x, y)"]) == {"x": 1, "y": 2}


def test_a_program_names_its_sources(project: str) -> None:
    """The files that declare what it calls, and no others."""
    program = compile_text("(math:add 1)", "test.sexp", CompileOptions(folder=project)).program
    assert [Path(source.path).name for source in program.sources] == ["test.sexp", "tools.yaml"]
    program = compile_text('(user:say "a" "b")', "test.sexp", CompileOptions(folder=project)).program
    assert [Path(source.path).name for source in program.sources] == ["test.sexp", "user-say.xml"]


NAMES = ("alpha", "beta", "gamma", "delta")


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_however_a_call_is_written_a_tool_gets_the_same(data: st.DataObject) -> None:
    """Any split of the arguments in places and names, in any order of the names."""
    values = data.draw(st.lists(st.integers(), min_size=4, max_size=4))
    count = data.draw(st.integers(0, 4))
    named = data.draw(st.permutations(list(zip(NAMES, values, strict=True))[count:]))
    operands = [str(value) for value in values[:count]]
    for name, value in named:
        operands.insert(data.draw(st.integers(0, len(operands))), f"({name} (+ 0 {value}))")
    declare = [f"far({','.join(NAMES)})"]
    found = args(f"(far {' '.join(operands)})", declare=declare)
    assert list(found.items()) == list(zip(NAMES, values, strict=True))


# --- which of several is meant ------------------------------------------------------------------


def test_a_lexical_binding_shadows(project: str) -> None:
    """A variable or function of the program hides a tool of its name."""
    assert asked("(define (math:add x) (* x x)) (math:add 3)", project) == []
    assert asked("(let ((math:add +)) (call math:add 1 2))", project) == []


def test_call_calls_functions_too(project: str) -> None:
    """`(call f …)` with a function in scope, or an expression that gives one, is an ordinary call."""
    assert (
        asked("(define (f x) x) (assert (= (call f 1) 1)) (call (lambda (y) y) 2) (call + 1 2)", project)
        == []
    )


def test_a_tool_comes_before_a_task(project: str) -> None:
    """Of the same name; and that is told, once."""
    ((kind, _),) = asked("(both 1)", project)
    assert kind == "tool"
    declared = Environment(declared=TaskRegistry(project))
    found = findings("(both 1) (both 2)", declared)
    assert [item.id for item in found] == ["tool-before-task"]
    text = '(defatom math:add (params x) (instructions "{{x}}")) (math:add 1)'
    assert [item.id for item in findings(text, declared)] == ["tool-before-task"]


def test_other_spellings_are_the_same_tool() -> None:
    """`system_x` is `system:x`."""
    ((kind, given),) = asked('(system_run_script "true")')
    assert (kind, given) == ("shell", {"command": "true"})


# --- what is wrong ------------------------------------------------------------------------------

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


def test_mistakes_are_found_before_anything_runs(project: str) -> None:
    """All of them in one go, each on its line."""
    declared = TaskRegistry(project, ["far:away"])
    found = findings(WRONG, Environment(declared=declared))
    told = [(item.span.line, item.id) for item in found if item.span is not None and item.is_error]
    expected = [(mark.line, mark.text) for mark in marks(WRONG)]
    assert set(expected) <= set(told)
    assert set(told) - set(expected) == {(5, "unbound-name")}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("(math:ad (x 1))", "did you mean `math:add`?"),
        ("(math:add (x 1) (yy 2))", "did you mean `y`?"),
        ("(math:add (xx 2))", "did you mean `x`?"),
        ("(math:add)", "write (math:add (x …) [(y …)])"),
        ("(wholly:unheard-of 1)", "--declare"),
    ],
)
def test_a_mistake_comes_with_what_to_write(project: str, text: str, shown: str) -> None:
    """The nearest name, or how the call is written."""
    (found,) = findings(text, Environment(declared=TaskRegistry(project)))
    assert found.help is not None
    assert shown in found.help


def test_a_type_is_checked_when_it_is_known_late(project: str) -> None:
    """A fault that names parameter, tool, type and value."""
    text = '(define (f x) (math:add x)) (try (f "5") (catch e (list (get e "kind") (get e "message"))))'
    program = compile_text(text, "test.sexp", CompileOptions(folder=project)).program
    stop = Machine(emit(program)).resume()
    assert isinstance(stop, Done)
    assert stop.value == ["type-error", '`x` of `math:add` is a number, not "5"']


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
def test_settings_are_checked_when_a_task_is_called(project: str, text: str) -> None:
    """A fault, and no effect."""
    program = compile_text(text, "test.sexp", CompileOptions(folder=project)).program
    stop = Machine(emit(program)).resume()
    assert getattr(stop, "kind", "") in ("type-error", "unknown-setting")


def test_a_tool_that_fails_is_a_fault(project: str) -> None:
    """Of the tool's own kind, told at the call; `try` catches it."""
    text = """(define (f)
  (math:add 1))
(try (f) (catch e (list (get e "kind") (get e "message") (get e "span"))))"""
    machine = Machine(emit(compile_text(text, "test.sexp", CompileOptions(folder=project)).program))
    machine.resume()
    stop = machine.resume({"error": {"kind": "broken", "message": "no more"}})
    assert isinstance(stop, Done)
    assert stop.value == ["broken", "`math:add`: no more", "test.sexp:2:3"]


def test_a_failed_task_is_a_value(project: str) -> None:
    """Nothing is raised: the program reads its status."""
    text = '(get (user:say "a" "b") "status")'
    machine = Machine(emit(compile_text(text, "test.sexp", CompileOptions(folder=project)).program))
    machine.resume()
    stop = machine.resume({"result": {"status": "FAILED", "content": "", "notes": {}}})
    assert isinstance(stop, Done)
    assert stop.value == "FAILED"


def test_a_broken_declaration_is_told_once(tmp_path: Path) -> None:
    """What is wrong is in the file; calls of what it may have declared are not told too."""
    folder = tmp_path / ".loops"
    folder.mkdir()
    (folder / "tools.yaml").write_text("tools:\n  - name: my:tool\n    comand: [x]\n")
    with pytest.raises(CompileError) as caught:
        compile_text("(my:tool (x 1)) (my:other 2)", "test.sexp", CompileOptions(folder=str(folder)))
    found = caught.value.diagnostics
    assert {item.span.path for item in found if item.span is not None} == {str(folder / "tools.yaml")}
    assert "comand" in render_all(found, caught.value.sources)


def test_a_program_without_calls_reads_no_declarations(tmp_path: Path) -> None:
    """What is wrong with the tools of a project concerns those who use one."""
    (tmp_path / "tools.yaml").write_text("tools: [")
    compile_text(
        "(define (f x) (g x)) (define (g x) x) (f 1)", "t.sexp", CompileOptions(folder=str(tmp_path))
    )


@pytest.mark.parametrize("text", ["", "a b c", "x(", "x(1)", "x(a,a)", "x)", "(x)", "x(a b)", "1x" * 100])
def test_a_declaration_on_the_side_is_checked(text: str) -> None:
    """`--declare` takes a name, or a name with parameters."""
    with pytest.raises(ValueError, match=r"."):
        parse_declaration(text)
