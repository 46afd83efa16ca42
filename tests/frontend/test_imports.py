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
    """Value of the file `main` of some files."""
    for name, text in files.items():
        (folder / f"{name}.sexp").write_text(text)
    outcome = Machine(emit(compile_flow(read_source(str(folder / "main.sexp"))).program)).resume()
    assert isinstance(outcome, Done), outcome
    return outcome.value


def ids(folder: Path, **files: str) -> list[tuple[str, str]]:
    """Diagnostic ids, each with its file."""
    with pytest.raises(CompileError) as caught:
        value(folder, **files)
    return [(Path(item.span.path).stem if item.span else "", item.id) for item in caught.value.diagnostics]


def test_definitions_and_macros_are_imported(tmp_path: Path) -> None:
    """Functions, values and macros of a file are visible in the importing file."""
    tools = """(define base 10) (define (tenfold x) (* base x))
               (define-syntax two (syntax-rules () ((_) (tenfold 2))))"""
    assert value(tmp_path, main='(import "tools.sexp") (list base (tenfold 3) (two))', tools=tools) == [
        10,
        30,
        20,
    ]


def test_imported_file_runs_once_before_its_importers(tmp_path: Path) -> None:
    """Imported files run once, in the order of the imports."""
    assert value(
        tmp_path,
        main='(import "a.sexp" "b.sexp" "log.sexp") (add "main") (seen)',
        a='(import "log.sexp") (add "a")',
        b='(import "log.sexp") (add "b")',
        log="""(define log nil) (define (seen) log)
               (define (add x) (set! log (append log (list x)))) (add "log")""",
    ) == ["log", "a", "b", "main"]


def test_a_path_may_be_spelled_in_two_ways(tmp_path: Path) -> None:
    """`./log.sexp` and `log.sexp` are one file with the same definitions."""
    main = '(import "log.sexp" "./log.sexp") (import "./x/../log.sexp") (size)'
    (tmp_path / "x").mkdir()
    assert value(tmp_path, main=main, log="(define (size) 3)") == 3


def test_imports_are_not_reexported(tmp_path: Path) -> None:
    """A file exports only its own definitions."""
    files = {"main": '(import "a.sexp") (deep)', "a": '(import "b.sexp")', "b": "(define (deep) 1)"}
    assert ids(tmp_path, **files) == [("main", "unbound-name")]


def test_names_of_two_files_are_two_variables(tmp_path: Path) -> None:
    """A private helper of an imported file does not clash with the importer's."""
    files = {
        "main": '(import "a.sexp") (let ((helper 5)) (list helper (work)))',
        "a": "(define (helper) 1) (define (work) (helper))",
    }
    assert value(tmp_path, **files) == [5, 1]


def test_name_defined_and_imported_is_an_error(tmp_path: Path) -> None:
    """Two top-level meanings of one name are an error."""
    files = {"main": '(import "a.sexp") (define x 1) x', "a": "(define x 2)"}
    assert ids(tmp_path, **files) == [("main", "repeated-name")]


def test_import_cycle_is_an_error(tmp_path: Path) -> None:
    """The message shows the import chain."""
    files = {"main": '(import "a.sexp") 1', "a": '(import "b.sexp")', "b": '(import "a.sexp")'}
    assert ids(tmp_path, **files) == [("b", "circular-import")]


def test_errors_of_imported_files_are_reported(tmp_path: Path) -> None:
    """One run reports the errors of every file."""
    files = {"main": '(import "a.sexp" "none.sexp") (car)', "a": "(cons 1)"}
    assert sorted(ids(tmp_path, **files)) == [
        ("a", "wrong-arity"),
        ("main", "cannot-import"),
        ("main", "wrong-arity"),
    ]
