"""Invalid, huge and endless programs end quickly with a clear error of limited size; limits can be set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import llc
from llc.ir.diagnostics import CompileError
from llc.runtime.launch.program_api import FlowError

LLC = "import sys\nfrom llc.runtime.cli.entry import main\nsys.exit(main())"
# Maximum size of an error, in bytes, for any program.
MAX_ERROR_BYTES = 4096


def refusal_ids(text: str) -> list[str]:
    """Ids of the diagnostics that refuse a program; the size of each diagnostic is limited."""
    with pytest.raises(CompileError) as error:
        llc.compile(text, "bad.sexp")
    for diagnostic in error.value.diagnostics:
        single_error = CompileError([diagnostic], error.value.sources)
        assert len(str(single_error).encode()) <= MAX_ERROR_BYTES
    return [diagnostic.id for diagnostic in error.value.diagnostics]


def fault_kind(text: str, **limits: int) -> str:
    """Kind of the fault that ends a program; the size of its message is limited."""
    with pytest.raises(FlowError) as error:
        llc.evaluate(text, limits=limits)
    fault = error.value.fault
    assert len(fault.message.encode()) <= MAX_ERROR_BYTES
    assert len("\n".join(fault.trace_lines()).encode()) <= MAX_ERROR_BYTES
    return fault.kind


def run_llc(folder: Path, text: str, *options: str) -> tuple[int, str]:
    """Exit code and complete output of `llc run` for a program."""
    path = folder / "bad.sexp"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    completed = subprocess.run(
        [sys.executable, "-c", LLC, "run", "bad.sexp", *options],
        cwd=folder,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert len(completed.stderr) <= MAX_ERROR_BYTES
    return completed.returncode, (completed.stdout + completed.stderr).decode()


# --- texts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["(" * 100_000 + ")" * 100_000, "(" * 100_000, ")" * 100_000, "'" * 100_000])
def test_deep_brackets_are_refused(text: str) -> None:
    """A hundred thousand brackets, balanced or not."""
    assert refusal_ids(text)


def test_error_for_deep_brackets_is_short(tmp_path: Path) -> None:
    """The output of the command has at most 4 KB."""
    code, text = run_llc(tmp_path, "(" * 100_000 + ")" * 100_000)
    assert code == 2
    assert "error[nested-too-deep]" in text


def test_nesting_limit_can_be_set(tmp_path: Path) -> None:
    """`--max-nesting` raises and lowers the limit."""
    text = "(+ 1 " * 2000 + "0" + ")" * 2000
    assert run_llc(tmp_path, text)[0] == 2
    assert run_llc(tmp_path, text, "--max-nesting", "3000") == (0, "2000\n")
    assert run_llc(tmp_path, "(+ (+ 1 1) 1)", "--max-nesting", "1")[0] == 2


def test_nul_bytes_are_refused() -> None:
    """In words, between words and in strings."""
    for text in ("(+ 1\0 2)", "\0", "a\0b", '"a\0b"', "(" + "\0" * 100_000):
        assert "bad-character" in refusal_ids(text)


def test_string_of_ten_megabytes(tmp_path: Path) -> None:
    """The string compiles and runs; a fault about it shows its beginning."""
    text = "x" * 10_000_000
    assert llc.evaluate(f'(length (split "{text}" ","))') == 1
    assert fault_kind(f'(+ 1 "{text}")') == "type-error"
    code, output = run_llc(tmp_path, f'(error "{text}")')
    assert code == 1
    assert "error[user]: xxx" in output
    assert refusal_ids(f'(let ((a "{text}") (a 1)) a)') == ["repeated-name"]
    assert "unterminated-string" in refusal_ids(f'(list "{text}')


def test_long_names_are_shortened() -> None:
    """A name of one megabyte in an error is shortened."""
    name = "n" * 1_000_000
    assert refusal_ids(name) == ["unbound-name"]
    assert set(refusal_ids(f"({name} 1 {name}x)")) <= {"unbound-name", "unknown-task"}
    assert "wrong-arity" in refusal_ids(f"(define ({name} a) a) ({name})")


def test_errors_inside_deep_nesting_are_short() -> None:
    """An error inside 900 forms does not show them."""
    assert refusal_ids("(list " * 900 + "nobody" + ")" * 900) == ["unbound-name"]
    assert fault_kind("(define (f n) (if (= n 0) (car 5) (+ 1 (f (- n 1))))) (f 100000)") == "type-error"
    program = "(define (f n l) (if (= n 0) (+ 1 l) (f (- n 1) (list l l)))) (f 100000 nil)"
    assert fault_kind(program) == "type-error"


# --- macros -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules",
    [
        "((_ x) (m (m x)))",
        "((_ x) (m x))",
        "((_ x ...) (m x ... x ...))",
        "((_ x ...) (begin (m x ... 1) (m x ... 2)))",
    ],
)
def test_endless_macro_expansion_is_refused(tmp_path: Path, rules: str) -> None:
    """Nested, in place, wider, and in number."""
    text = f"(define-syntax m (syntax-rules () {rules})) (m 1)"
    code, output = run_llc(tmp_path, text, "--max-expansions", "2000")
    assert code == 2
    assert "error[endless-expansion]" in output or "error[nesting-too-deep]" in output


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "(expt 10 (expt 10 9))",
        "(define (square n k) (if (= k 0) n (square (* n n) (- k 1)))) (square 3 40)",
        "(expt 2 1000000)",
        "(define (double l k) (if (= k 0) l (double (append l l) (- k 1)))) (double '(1 2) 60)",
        "(range 1000000000000)",
        '(define (double s k) (if (= k 0) s (double (string-append s s) (- k 1)))) (double "ab" 60)',
    ],
)
def test_huge_values_are_faults(text: str) -> None:
    """Integers, lists and strings that grow without limit end in a fault before they fill the memory."""
    assert fault_kind(text) == "too-large"


def test_size_limit_can_be_set() -> None:
    """`size` limits the items of lists, and strings and integers in proportion, for one evaluation."""
    assert len(llc.evaluate("(range 1000)", limits={"size": 1000})) == 1000
    assert fault_kind("(range 1001)", size=1000) == "too-large"
    assert fault_kind('(define (d s) (d (string-append s s))) (d "x")', size=1000) == "too-large"
    assert fault_kind("(expt 2 1100)", size=1000) == "too-large"
    assert llc.evaluate("(length (range 1001))") == 1001


def test_regular_expressions_take_linear_time() -> None:
    """Patterns that take exponential time in a backtracking matcher."""
    text = "a" * 5000 + "!"
    for pattern in ("(a+)+$", "(a|aa)+$", "(.*a){20}$", "((a*)*)*b"):
        assert llc.evaluate(f'(regex-match "{pattern}" "{text}")') is None
    assert fault_kind('(regex-match "(" "a")') != ""
    assert fault_kind(f'(regex-match "{"(a{1000}){1000}" * 2}" "a")') != ""


# --- running ----------------------------------------------------------------------------------


def test_endless_program_stops_when_its_fuel_is_used(tmp_path: Path) -> None:
    """The run can be resumed with more fuel, and then stops again."""
    text = "(define n 0) (define (spin) (set! n (+ n 1)) (spin)) (spin)"
    code, output = run_llc(tmp_path, text, "--fuel", "5000")
    assert code == 3
    assert "error[out-of-fuel]" in output
    run = output.partition("llc resume ")[2].split()[0]
    command = [sys.executable, "-c", LLC, "resume", run, "--fuel", "9000", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert '"terminated_by": "fuel"' in done.stdout
    assert "(9,000 ticks)" in done.stdout


def test_run_with_more_fuel_finishes(tmp_path: Path) -> None:
    """No action is repeated, and the value is that of an uninterrupted run."""
    text = '(system:execute_shell_command (command "echo x >> log"))'
    text += "(define (f n) (if (= n 0) 7 (f (- n 1)))) (f 20000)"
    code, output = run_llc(tmp_path, text, "--fuel", "5000")
    assert code == 3
    run = output.partition("llc resume ")[2].split()[0]
    command = [sys.executable, "-c", LLC, "resume", run, "--fuel", "50000", "--quiet", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, '"value": 7' in done.stdout) == (0, True)
    assert (tmp_path / "log").read_text() == "x\n"


def test_limits_apply_to_the_resumed_run(tmp_path: Path) -> None:
    """Depth and size are recorded; the resumed run raises the same fault."""
    text = """(define (f n) (if (= n 0) 0 (+ 1 (f (- n 1)))))
    (define (spin n) (if (= n 0) nil (spin (- n 1))))
    (define first (try (f 200) (catch e (get e "kind"))))
    (spin 20000)
    (list first (try (f 200) (catch e (get e "kind"))) (try (range 2000) (catch e (get e "kind"))))"""
    code, output = run_llc(tmp_path, text, "--fuel", "5000", "--max-depth", "100", "--max-size", "1000")
    assert code == 3
    run = output.partition("llc resume ")[2].split()[0]
    command = [sys.executable, "-c", LLC, "resume", run, "--fuel", "100000", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert '"value": ["too-deep", "too-deep", "too-large"]' in done.stdout


def test_limits_can_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option takes precedence; a value that is not a number is refused."""
    monkeypatch.setenv("LLC_MAX_DEPTH", "50")
    text = "(define (f n) (if (= n 0) 'done (car (list (f (- n 1)))))) (f 100)"
    assert "too-deep" in run_llc(tmp_path, text)[1]
    assert run_llc(tmp_path, text, "--max-depth", "500") == (0, '"done"\n')
    monkeypatch.setenv("LLC_FUEL", "lots")
    assert run_llc(tmp_path, text)[0] == 2


def memory() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run_and_measure(text: str) -> tuple[object, int]:
    """Value of a program, and by how many bytes the memory grew at most while it ran."""
    from llc.vm.machine.machine import Done, OutOfFuel
    from llc.vm.tiered import Machine

    machine = Machine(llc.compile(text, "<expression>"))
    before, max_growth = memory(), 0
    while True:
        machine.refuel(50_000)
        stop = machine.resume()
        max_growth = max(max_growth, memory() - before)
        if not isinstance(stop, OutOfFuel):
            assert isinstance(stop, Done)
            return stop.value, max_growth


def test_memory_of_a_frame_is_small() -> None:
    """A call that is not a tail call takes less than 300 bytes at any depth."""
    value, growth = run_and_measure("(define (count n) (if (= n 0) 0 (+ 1 (count (- n 1))))) (count 200000)")
    assert value == 200_000
    assert growth < 200_000 * 300


def test_tail_calls_take_no_memory() -> None:
    """Two functions that call each other in tail position."""
    text = (
        "(define (a n) (if (= n 0) 'end (b (- n 1)))) (define (b n) (if (= n 0) 'end (a (- n 1)))) (a 400000)"
    )
    value, growth = run_and_measure(text)
    assert value == "end"
    assert growth < 4_000_000
