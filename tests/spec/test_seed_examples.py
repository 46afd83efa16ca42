"""The S-expressions of the seeds, unchanged: each compiles and runs.

What a seed leaves open (`<number-expr>`) is a symbol like any other here: the test binds it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import llc
from llc.frontend.source.files import text_source
from llc.runtime.effects.script_reader import read_world

WORLD = """
- {tool: math:add, args: {x: 10, y: 5}, value: 15}
- {task: user:summarise, content: short}
- {tool: aider:automatic, results: [{value: {content: one}}, {value: {content: two}}]}
- {task: user:generate-plan, content: plan, parsedContent: {steps: [first, second]}}
- {task: identifier, content: called}
- {tool: "<identifier>", value: called}
- {task: user:director, results: [{content: draft}, {content: better}]}
- task: user:evaluator
  results: [{parsedContent: {success: false, feedback: more}}, {parsedContent: {success: true}}]
- {kind: shell, command: "make test", results: [{exit_code: 1, output: "1 failed"}, {exit_code: 0}]}
- task: user:analyze-iteration-structured
  results:
    - {parsedContent: {success: false, analysis: no, next_input: try harder, new_files: [g1]}}
    - {parsedContent: {success: true, analysis: "yes"}}
- {task: user:code, results: [{content: v1}, {content: v2}]}
- {kind: context, matches: [a.py, b.py]}
"""


def value(text: str, declare: tuple[str, ...] = (), **bindings: Any) -> Any:
    """Value of a program in the scripted world."""
    return llc.evaluate(text, bindings, read_world(text_source(WORLD)), declare=declare)


# --- sexpr-syntax-and-evaluation.md -------------------------------------------------------------


def test_a_call_of_a_tool_is_bound() -> None:
    """Specification 1, the example."""
    assert value("(bind result (call math:add (x 10) (y 5)))", ("math:add",)) == 15
    assert value("(bind result (call math:add (x 10) (y 5))) (+ result 1)", ("math:add",)) == 16
    assert value("(call math:add 10 5)", ("math:add(x,y)",)) == 15


@pytest.mark.parametrize("declared", ["task identifier(text)"])
def test_the_call_primitive(declared: str) -> None:
    """`(call identifier <arg>*)`: the task's TaskResult."""
    found = value("(define <arg>* 5) (call identifier <arg>*)", (declared,))
    assert found == {"status": "COMPLETE", "content": "called", "notes": {}}


def test_the_bind_primitive() -> None:
    """`(bind symbol expression)` stores in the current scope and returns the value."""
    assert value("(bind symbol expression)", expression=[1]) == [1]
    assert value("(bind symbol expression) symbol", expression=[1]) == [1]


def test_the_map_primitive() -> None:
    """`(map task_expression list_expression)`: `item` is bound for a task expression."""
    program = "(define (task_expression x) (* x 2)) (define list_expression '(1 2)) "
    assert value(program + "(map task_expression list_expression)") == [2, 4]
    text = '(map (call aider:automatic (prompt item)) (list "a" "b"))'
    assert [found["content"] for found in value(text)] == ["one", "two"]


def test_the_get_context_primitive() -> None:
    """`(get_context <option>*)`: the paths, best first; the values of options are expressions."""
    text = '(define my_hist_var "before") (get_context (query "...") (history my_hist_var))'
    assert value(text) == ["a.py", "b.py"]


def test_plan_then_map() -> None:
    """Context: `plan -> map instructions -> map aider`."""
    text = """
      (bind plan (call user:generate-plan (goal "refactor") (files (list "a.py"))))
      (bind steps (get-field plan "parsedContent.steps"))
      (map (get-field (call aider:automatic (prompt item)) 'content) steps)
    """
    assert value(text, ("task user:generate-plan",)) == ["one", "two"]


# --- director-evaluator-in-the-dsl.md -----------------------------------------------------------


def test_the_primitives_of_the_pattern() -> None:
    """`(<identifier> <arg>*)`, `(bind <symbol> <expression>)`, `(if <cond> <then> <else>)`."""
    assert value("(define <arg>* 1) (<identifier> <arg>*)", ("<identifier>(x)",)) == "called"
    assert value("(bind <symbol> <expression>)", **{"<expression>": 5}) == 5
    assert value("(if <cond> <then> <else>)", **{"<cond>": False, "<then>": 1, "<else>": 2}) == 2


def test_the_pattern_with_bind_if_and_recursion() -> None:
    """Decision 3: director, script and evaluator are called, feedback is passed on, a limit ends the loop."""
    text = """
      (define (improve feedback round limit)
        (bind draft (user:director (feedback feedback)))
        (bind run (system:run_script (command "make test")))
        (bind verdict (user:evaluator (draft (get-field draft 'content)) (run run)))
        (if (or (get-field verdict "parsedContent.success") (= round limit))
            (list (get-field draft 'content) (get-field run 'exit_code) round)
            (improve (get-field verdict "parsedContent.feedback") (+ round 1) limit)))
      (improve null 1 5)
    """
    assert value(text, ("task user:director", "task user:evaluator")) == ["better", 0, 2]


# --- iterative-loop.md --------------------------------------------------------------------------

ITERATIVE = """(iterative-loop
  ;; -- Loop Configuration --
  (max-iterations <number-expr>)       ; Max loop cycles (non-negative integer)
  (initial-input <structured-expr>)   ; Structured input for the *first* executor call
  (test-command <cmd-string-expr>)    ; Command string for the validator phase

  ;; -- User-Provided Phase Functions --
  (executor   <executor-function-expr>)   ; Executes the main task
  (validator  <validator-function-expr>)  ; Runs programmatic validation (e.g., tests)
  (controller <controller-function-expr>) ; Calls LLM analysis task & decides next step
)"""
PHASES = """
(define <number-expr> 5)
(define <structured-expr> (list (list 'prompt "...") (list 'files '("f1"))))
(define <cmd-string-expr> "make test")
(define (<executor-function-expr> current_structured_input iteration_number)
  (user:code
    (prompt (get-field current_structured_input 'prompt))
    (files (get-field current_structured_input 'files))))
(define (<validator-function-expr> test_command_string iteration_number)
  (system:execute_shell_command (command test_command_string)))
(define (<controller-function-expr>
         executor_result validation_result current_structured_input iteration_number)
  (bind analysis
    (get-field
      (user:analyze-iteration-structured
        (status (get-field executor_result 'status))
        (stdout (get-field validation_result 'stdout))
        (exit_code (get-field validation_result 'exit_code)))
      'parsedContent))
  (if (get-field analysis 'success)
      (list 'stop (list (get-field executor_result 'content) iteration_number))
      (list 'continue
        (list (list 'prompt (get-field analysis 'next_input))
              (list 'files (append (get-field current_structured_input 'files)
                                   (get-field analysis 'new_files)))))))
"""


def test_the_iterative_loop() -> None:
    """Syntax, 1: the unchanged form, with phases that call tasks and the shell."""
    declare = ("task user:code", "task user:analyze-iteration-structured")
    assert value(PHASES + ITERATIVE, declare) == ["v2", 2]


def test_the_helper_task_is_defined_with_defatom() -> None:
    """6, Required helper task: an atomic task whose JSON fits StructuredAnalysisResult."""
    helper = """
      (defatom user:analyze-iteration-structured
        (params (status string) (stdout string) (exit_code integer))
        (instructions "It ended {{status}}, the tests with {{exit_code}}: {{stdout}}")
        (output_format ((type "json") (schema "StructuredAnalysisResult"))))
    """
    assert value(helper + PHASES + ITERATIVE, ("task user:code",)) == ["v2", 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('(list (list \'prompt "...") (list \'files \'("f1")))', [["prompt", "..."], ["files", ["f1"]]]),
        ("'(continue <next_structured_input>)", ["continue", "<next_structured_input>"]),
        ("'(stop <final_loop_result>)", ["stop", "<final_loop_result>"]),
        ("(list 'continue <value>)", ["continue", 5]),
    ],
)
def test_the_data_of_the_loop(text: str, expected: Any) -> None:
    """2 and 3: inputs and decisions are lists that begin with a symbol."""
    bindings = {"<value>": 5} if "<value>" in text else {}
    assert value(text, **bindings) == expected


# --- director-evaluator-loop.md -----------------------------------------------------------------

DIRECTED = """(director-evaluator-loop
  ;; -- Configuration for the loop --
  (max-iterations <number-expr>)      ; Max number of loop iterations.
  (initial-director-input <expr>)   ; Expression evaluating to the input for the *first* director call.

  ;; -- User-defined phase functions (lambdas or names of S-expression functions) --
  (director   <director-function-expr>)
  (executor   <executor-function-expr>)
  (evaluator  <evaluator-function-expr>)
  (controller <controller-function-expr>)
)"""


def test_the_director_evaluator_loop() -> None:
    """Syntax: the unchanged form."""
    phases = """
      (define <number-expr> 5)
      (define <expr> null)
      (define (<director-function-expr> current-input iteration-number)
        (get-field (user:director (feedback current-input)) 'content))
      (define (<executor-function-expr> plan iteration-number)
        (system:execute_shell_command (command "make test")))
      (define (<evaluator-function-expr> result plan iteration-number)
        (get-field (user:evaluator (draft plan) (run result)) 'parsedContent))
      (define (<controller-function-expr> feedback plan result iteration-number)
        (if (get-field feedback 'success)
            (list 'stop (list plan iteration-number))
            (list 'continue (get-field feedback 'feedback))))
    """
    assert value(phases + DIRECTED, ("task user:director", "task user:evaluator")) == ["better", 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'(continue <next-director-input>)", ["continue", "<next-director-input>"]),
        ("'(stop <final-loop-value>)", ["stop", "<final-loop-value>"]),
        ("(define <count> 3) (define <body> 7) (loop <count> <body>)", 7),
    ],
)
def test_the_data_of_the_director_loop(text: str, expected: Any) -> None:
    """Decisions, and the older `(loop <count> <body>)`."""
    assert value(text) == expected


# --- real shell ---------------------------------------------------------------------------------


def test_the_iterative_loop_with_a_real_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The validator runs its command; the executor repairs the file that the command checks."""
    monkeypatch.chdir(tmp_path)
    text = """
      (iterative-loop
        (max-iterations 3)
        (initial-input (list (list 'prompt "write it") (list 'files '("f1"))))
        (test-command "test -s f1 && cat f1")
        (executor (lambda (input n)
          (if (= n 1)
              "not yet"
              (system:write_file (file_path (first (get-field input 'files))) (content "fixed")))))
        (validator (lambda (command n) (system:execute_shell_command (command command))))
        (controller (lambda (result validation input n)
          (if (= (get-field validation 'exit_code) 0)
              (list 'stop (get-field validation 'stdout))
              (list 'continue input)))))
    """
    assert llc.evaluate(text) == "fixed"
