"""`import`: definitions of other files are loaded once, in order, with separate private names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llc.frontend.link.flow import compile_flow
from llc.frontend.source.files import read_source
from llc.ir.diagnostics import CompileError
from llc.vm.code.emit import emit
from llc.vm.machine.machine import Done
from llc.vm.tiered import Machine


def value(folder: Path, **files: str) -> Any:
    """What the file `main` of some files gives."""
    for name, text in files.items():
        (folder / f"{name}.sexp").write_text(text)
    outcome = Machine(emit(compile_flow(read_source(str(folder / "main.sexp"))).program)).resume()
    assert isinstance(outcome, Done), outcome
    return outcome.value


def ids(folder: Path, **files: str) -> list[tuple[str, str]]:
    """Findings, each with the file it is in."""
    with pytest.raises(CompileError) as caught:
        value(folder, **files)
    return [(Path(item.span.path).stem if item.span else "", item.id) for item in caught.value.diagnostics]


def test_definitions_and_macros_are_imported(tmp_path: Path) -> None:
    """Functions, values and macros of a file are known in the one that imports it."""
    tools = """(define base 10) (define (tenfold x) (* base x))
               (define-syntax two (syntax-rules () ((_) (tenfold 2))))"""
    assert value(tmp_path, main='(import "tools.sexp") (list base (tenfold 3) (two))', tools=tools) == [
        10,
        30,
        20,
    ]


def test_a_file_runs_once_before_those_that_import_it(tmp_path: Path) -> None:
    """However many files import it, and in the order they do."""
    assert value(
        tmp_path,
        main='(import "a.sexp" "b.sexp" "log.sexp") (add "main") (seen)',
        a='(import "log.sexp") (add "a")',
        b='(import "log.sexp") (add "b")',
        log="""(define log nil) (define (seen) log)
               (define (add x) (set! log (append log (list x)))) (add "log")""",
    ) == ["log", "a", "b", "main"]


def test_a_path_may_be_spelled_in_two_ways(tmp_path: Path) -> None:
    """`./log.sexp` is `log.sexp`; its definitions are the same ones."""
    main = '(import "log.sexp" "./log.sexp") (import "./x/../log.sexp") (size)'
    (tmp_path / "x").mkdir()
    assert value(tmp_path, main=main, log="(define (size) 3)") == 3


def test_what_a_file_imports_is_not_passed_on(tmp_path: Path) -> None:
    """A file exports what it defines itself."""
    files = {"main": '(import "a.sexp") (deep)', "a": '(import "b.sexp")', "b": "(define (deep) 1)"}
    assert ids(tmp_path, **files) == [("main", "unbound-name")]


def test_names_of_two_files_are_two_variables(tmp_path: Path) -> None:
    """A private helper of an imported file does not meet the importer's own."""
    files = {
        "main": '(import "a.sexp") (let ((helper 5)) (list helper (work)))',
        "a": "(define (helper) 1) (define (work) (helper))",
    }
    assert value(tmp_path, **files) == [5, 1]


def test_a_name_defined_and_imported_is_told(tmp_path: Path) -> None:
    """Two meanings of one name at the top of a file are refused."""
    files = {"main": '(import "a.sexp") (define x 1) x', "a": "(define x 2)"}
    assert ids(tmp_path, **files) == [("main", "repeated-name")]


def test_a_circle_of_imports_is_told(tmp_path: Path) -> None:
    """Files that import one another are refused, the chain is named."""
    files = {"main": '(import "a.sexp") 1', "a": '(import "b.sexp")', "b": '(import "a.sexp")'}
    assert ids(tmp_path, **files) == [("b", "circular-import")]


def test_findings_in_imported_files_stand_there(tmp_path: Path) -> None:
    """One run finds what is wrong in every file."""
    files = {"main": '(import "a.sexp" "none.sexp") (car)', "a": "(cons 1)"}
    assert sorted(ids(tmp_path, **files)) == [
        ("a", "wrong-arity"),
        ("main", "cannot-import"),
        ("main", "wrong-arity"),
    ]
