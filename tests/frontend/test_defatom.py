"""`defatom`: tasks defined by a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flow_texts import findings, marks

from llc.frontend.compile import compile_file, compile_text
from llc.ir.diagnostics import CompileError
from llc.vm.code.emit import emit
from llc.vm.machine.machine import Done, Effect
from llc.vm.tiered import Machine

FULL = """
(defatom user:analyze
  (subtype "evaluation")
  (instructions "Look at {{result}} and {{ run.stdout }}.")
  (params (result string) (run) (depth integer 3))
  (description "Analyse one iteration.")
  (model "claude-haiku-4-5")
  (system "You judge {{result}}.")
  (criteria "Fair.")
  (output_format ((type "json") (schema "object")))
  (history_config ((use_session_history false) (history_turns_to_include 2))))
(user:analyze "done" (dict (stdout "ok")))
"""


def first_effect(text: str) -> Effect:
    stop = Machine(emit(compile_text(text, "test.sexp").program)).resume()
    assert isinstance(stop, Effect)
    return stop


def test_a_task_is_defined_and_called() -> None:
    """Clauses have any order; the effect contains the task definition."""
    effect = first_effect(FULL)
    args: dict[str, Any] = effect.args
    assert (effect.kind, args["name"]) == ("task", "user:analyze")
    assert args["inputs"] == {"result": "done", "run": {"stdout": "ok"}, "depth": 3}
    definition = args["definition"]
    assert definition["instructions"] == "Look at {{result}} and {{ run.stdout }}."
    assert definition["subtype"] == "evaluation"
    assert definition["output_format"] == {"type": "json", "schema": {"type": "object"}}
    assert definition["history_config"] == {"use_session_history": False, "history_turns_to_include": 2}
    assert [definition[name] for name in ("description", "model", "system", "criteria")] == [
        "Analyse one iteration.", "claude-haiku-4-5", "You judge {{result}}.", "Fair.",
    ]  # fmt: skip


def test_defatom_returns_the_task_name() -> None:
    """The value of the form is the name of the task; no effect is performed."""
    stop = Machine(emit(compile_text('(defatom t (params) (instructions "x"))', "t.sexp").program)).resume()
    assert isinstance(stop, Done)
    assert stop.value == "t"


@pytest.mark.parametrize(
    "params", ["(params a b)", "(params (a) (b))", "(params (a string) (b any))", '(params (a "string") b)']
)
def test_parameter_syntax(params: str) -> None:
    """Brackets and types are optional."""
    effect = first_effect(f'(defatom t {params} (instructions "{{{{a}}}}{{{{b}}}}")) (t "1" "2")')
    assert effect.args["inputs"] == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    "params",
    [
        "(params (a str) (b int))",
        "(params '((a string) (b integer)))",
        "(params ((a string) (b integer)))",
        "(params (a str) (b (optional int)))",
        "(params (a string) (b int?))",
        "(params (a 'str) (b '(optional int)))",
        "(params (a string) (b optional))",
        "(params (a (optional any)) (b float) (c bool?) (d (optional dict)))",
    ],
)
def test_alternative_parameter_syntax(params: str) -> None:
    """Python type names, optional parameters and one quoted list are accepted."""
    effect = first_effect(f'(defatom t {params} (instructions "{{{{a}}}}{{{{b}}}}")) (t (a "1") (b 2))')
    assert effect.args["inputs"] == {"a": "1", "b": 2}
    if "optional" in params or "?" in params:
        left = "(b 2)" if "a (optional" in params else '(a "1")'
        effect = first_effect(f'(defatom t {params} (instructions "{{{{a}}}}{{{{b}}}}")) (t {left})')
        assert len(effect.args["inputs"]) == 1
    else:
        assert any(
            item.id == "missing-parameter"
            for item in findings(f'(defatom t {params} (instructions "{{{{a}}}}{{{{b}}}}")) (t "1")')
        )


def test_quoted_clauses_nil_turns_and_schemas_by_their_path() -> None:
    """Quotes in clauses are ignored, nil turns mean all turns, a schema may be a path."""
    text = """(defatom t (params) (instructions "x") (subtype 'evaluation)
      (output_format '((type "json") (schema "system.models.StructuredAnalysisResult")))
      (history_config '((use_session_history true) (history_turns_to_include nil))))
    (t)"""
    definition: dict[str, Any] = first_effect(text).args["definition"]
    assert definition["subtype"] == "evaluation"
    assert definition["history_config"] == {"use_session_history": True}
    assert set(definition["output_format"]["schema"]["required"]) >= {"success", "analysis"}


def test_no_parameters() -> None:
    """`(params)` and `(params ())` are equivalent."""
    for params in ("(params)", "(params ())"):
        assert first_effect(f'(defatom t {params} (instructions "x")) (t)').args["inputs"] == {}


def test_task_is_visible_in_the_whole_file() -> None:
    """Functions before the definition may call the task."""
    effect = first_effect('(define (f) (t (a 1))) (defatom t (params a) (instructions "{{a}}")) (f)')
    assert effect.args["inputs"] == {"a": 1}


def test_task_is_exported(tmp_path: Path) -> None:
    """A task is exported like a function or macro."""
    (tmp_path / "tasks.sexp").write_text('(defatom t (params a) (instructions "{{a}}"))')
    (tmp_path / "main.sexp").write_text('(import "tasks.sexp") (t (a 5))')
    stop = Machine(emit(compile_file(str(tmp_path / "main.sexp")).program)).resume()
    assert isinstance(stop, Effect)
    assert stop.args["inputs"] == {"a": 5}


def test_a_macro_may_define_a_task() -> None:
    """The macro argument gives the task its name."""
    text = """
      (define-syntax asking
        (syntax-rules () ((_ name words) (defatom name (params q) (instructions words)))))
      (asking user:ask "Q: {{q}}")
      (user:ask "why")
    """
    assert first_effect(text).args["inputs"] == {"q": "why"}


WRONG = """
(defatom if (params) (instructions "x"))                     ; error: bad-name
(defatom "a" (params) (instructions "x"))                    ; error: bad-binding
(defatom t1 (instructions "x"))                              ; error: missing-clause
(defatom t2 (params))                                        ; error: missing-clause
(defatom t3 (params) (instructions "x") (instructions "y"))  ; error: repeated-clause
(defatom t4 (params) (instrctions "x"))                      ; error: unknown-clause
(defatom t5 (params) (instructions 5))                       ; error: bad-clause
(defatom t6 (params) (instructions "{{x}}"))                 ; error: unknown-placeholder
(defatom t7 (params a a) (instructions "x"))                 ; error: repeated-parameter
(defatom t8 (params (a strng)) (instructions "x"))           ; error: unknown-type
(defatom t9 (params (a integer "x")) (instructions "x"))     ; error: wrong-type
(defatom t10 (params) (instructions "x") 5)                  ; error: bad-clause
(defatom t11 (params) (instructions "x") (output_format (type "xml")))  ; error: unknown-choice
(defatom t12 (params) (instructions "x") (output_format (schema "objct")))  ; error: bad-schema
(defatom t13 (params) (instructions "x") (history_config (turns 5)))  ; error: unknown-setting
(defatom t13 (params) (instructions "x"))                    ; error: repeated-task
(let () (defatom t14 (params) (instructions "x")))           ; error: misplaced-defatom
(t13 (q 5))                                                  ; error: unknown-parameter
(set! t13 5)                                                 ; error: cannot-set
"""


def test_wrong_definitions_are_compile_errors() -> None:
    """All errors are reported together, each on its line."""
    actual = {
        (item.span.line, item.id) for item in findings(WRONG) if item.span is not None and item.is_error
    }
    expected = {(mark.line, mark.text) for mark in marks(WRONG)}
    assert expected <= actual
    assert actual - expected == {(7, "missing-clause")}


def test_duplicate_task_is_an_error(tmp_path: Path) -> None:
    """Two definitions are an error in one file and in two files."""
    (tmp_path / "a.sexp").write_text('(defatom t (params) (instructions "a"))')
    (tmp_path / "b.sexp").write_text('(import "a.sexp") (define x 1) (defatom t (params) (instructions "b"))')
    from llc.ir.diagnostics import CompileError

    with pytest.raises(CompileError) as caught:
        compile_file(str(tmp_path / "b.sexp"))
    assert [item.id for item in caught.value.diagnostics] == ["repeated-task"]


@pytest.mark.parametrize("left_out", ["nil", "(when false 1)", "null", "'()"])
@pytest.mark.parametrize("type", ["string", "(optional int)", "(optional dict)", "bool?"])
def test_nil_omits_an_optional_parameter(left_out: str, type: str) -> None:
    """The nil may be a constant or a value computed at run time, as by `when`."""
    kind = type if type != "string" else "(optional string)"
    text = f'(defatom t (params a (b {kind})) (instructions "{{{{a}}}}{{{{b}}}}")) (t "1" {left_out})'
    assert first_effect(text).args["inputs"] == {"a": "1"}


@pytest.mark.parametrize("argument", ['\'((x 1) (y "z"))', '(list (list \'x 1) (list "y" "z"))'])
def test_list_of_pairs_is_accepted_as_map(argument: str) -> None:
    """The list may be written in the call or computed by the program, as for task settings."""
    text = f'(defatom t (params (a dict)) (instructions "{{{{a}}}}")) (t {argument})'
    assert first_effect(text).args["inputs"] == {"a": {"x": 1, "y": "z"}}


def test_other_lists_are_not_maps() -> None:
    text = '(defatom t (params (a dict)) (instructions "{{a}}")) (t \'(1 2))'
    with pytest.raises(CompileError, match="`a` of `t` must be a map, not a list"):
        compile_text(text, "t.sexp")
