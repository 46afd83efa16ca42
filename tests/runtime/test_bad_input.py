"""Invalid, huge and endless programs end quickly with a clear error of bounded size; limits are settable."""

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
# No error is longer, in bytes, whatever the program is like.
LONGEST = 4096


def refused(text: str) -> list[str]:
    """The kinds of what a program is refused for; what is shown of it is bounded."""
    with pytest.raises(CompileError) as error:
        llc.compile(text, "bad.sexp")
    for finding in error.value.diagnostics:
        alone = CompileError([finding], error.value.sources)
        assert len(str(alone).encode()) <= LONGEST
    return [finding.id for finding in error.value.diagnostics]


def failed(text: str, **limits: int) -> str:
    """The kind of the fault that a program ends in; its message is bounded."""
    with pytest.raises(FlowError) as error:
        llc.evaluate(text, limits=limits)
    fault = error.value.fault
    assert len(fault.message.encode()) <= LONGEST
    assert len("\n".join(fault.trace_lines()).encode()) <= LONGEST
    return fault.kind


def shown(folder: Path, text: str, *options: str) -> tuple[int, str]:
    """What `llc run` says of a program: its exit code, and everything it wrote."""
    path = folder / "bad.sexp"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    done = subprocess.run(
        [sys.executable, "-c", LLC, "run", "bad.sexp", *options],
        cwd=folder,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert len(done.stderr) <= LONGEST
    return done.returncode, (done.stdout + done.stderr).decode()


# --- texts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["(" * 100_000 + ")" * 100_000, "(" * 100_000, ")" * 100_000, "'" * 100_000])
def test_deep_brackets_are_refused(text: str) -> None:
    """Balanced or not, a hundred thousand brackets end in an error."""
    assert refused(text)


def test_deep_brackets_are_shown_in_a_few_lines(tmp_path: Path) -> None:
    """The command line says it in no more than 4 KB, and how deep is too deep."""
    code, text = shown(tmp_path, "(" * 100_000 + ")" * 100_000)
    assert code == 2
    assert "error[nested-too-deep]" in text


def test_nesting_is_settable(tmp_path: Path) -> None:
    """What is too deep by default runs where more is allowed, and the other way round."""
    text = "(+ 1 " * 2000 + "0" + ")" * 2000
    assert shown(tmp_path, text)[0] == 2
    assert shown(tmp_path, text, "--max-nesting", "3000") == (0, "2000\n")
    assert shown(tmp_path, "(+ (+ 1 1) 1)", "--max-nesting", "1")[0] == 2


def test_nul_bytes_are_refused() -> None:
    """In words, between them and in strings."""
    for text in ("(+ 1\0 2)", "\0", "a\0b", '"a\0b"', "(" + "\0" * 100_000):
        assert "bad-character" in refused(text)


def test_a_string_of_ten_megabytes_is_a_string(tmp_path: Path) -> None:
    """It compiles and runs; a fault about it shows its beginning."""
    text = "x" * 10_000_000
    assert llc.evaluate(f'(length (split "{text}" ","))') == 1
    assert failed(f'(+ 1 "{text}")') == "type-error"
    code, said = shown(tmp_path, f'(error "{text}")')
    assert code == 1
    assert "error[user]: xxx" in said
    assert refused(f'(let ((a "{text}") (a 1)) a)') == ["repeated-name"]
    assert "unterminated-string" in refused(f'(list "{text}')


def test_long_names_are_shown_short() -> None:
    """A megabyte of a name that nothing has, in a line of its own or with others."""
    name = "n" * 1_000_000
    assert refused(name) == ["unbound-name"]
    assert set(refused(f"({name} 1 {name}x)")) <= {"unbound-name", "unknown-task"}
    assert "wrong-arity" in refused(f"(define ({name} a) a) ({name})")


def test_errors_deep_inside_are_short() -> None:
    """What is wrong under 900 forms is said without the 900."""
    assert refused("(list " * 900 + "nobody" + ")" * 900) == ["unbound-name"]
    assert failed("(define (f n) (if (= n 0) (car 5) (+ 1 (f (- n 1))))) (f 100000)") == "type-error"
    deep = "(define (f n l) (if (= n 0) (+ 1 l) (f (- n 1) (list l l)))) (f 100000 nil)"
    assert failed(deep) == "type-error"


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
def test_macros_that_expand_for_ever_are_refused(tmp_path: Path, rules: str) -> None:
    """Deeper, in place, wider or in number."""
    text = f"(define-syntax m (syntax-rules () {rules})) (m 1)"
    code, said = shown(tmp_path, text, "--max-expansions", "2000")
    assert code == 2
    assert "error[endless-expansion]" in said or "error[nesting-too-deep]" in said


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
def test_values_that_explode_are_faults(text: str) -> None:
    """Integers, lists and texts that grow beyond every measure, before they fill the memory."""
    assert failed(text) == "too-large"


def test_the_size_of_values_is_settable() -> None:
    """Lists to the item, texts and integers in proportion; and only while it is asked for."""
    assert len(llc.evaluate("(range 1000)", limits={"size": 1000})) == 1000
    assert failed("(range 1001)", size=1000) == "too-large"
    assert failed('(define (d s) (d (string-append s s))) (d "x")', size=1000) == "too-large"
    assert failed("(expt 2 1100)", size=1000) == "too-large"
    assert llc.evaluate("(length (range 1001))") == 1001


def test_regular_expressions_take_linear_time() -> None:
    """What makes a backtracking matcher explode is matched, or not, at once."""
    text = "a" * 5000 + "!"
    for pattern in ("(a+)+$", "(a|aa)+$", "(.*a){20}$", "((a*)*)*b"):
        assert llc.evaluate(f'(regex-match "{pattern}" "{text}")') is None
    assert failed('(regex-match "(" "a")') != ""
    assert failed(f'(regex-match "{"(a{1000}){1000}" * 2}" "a")') != ""


# --- running ----------------------------------------------------------------------------------


def test_programs_that_never_end_stop_when_their_fuel_is_used(tmp_path: Path) -> None:
    """The run stays, says how to go on, and does with more fuel: here to the same end, later."""
    text = "(define n 0) (define (spin) (set! n (+ n 1)) (spin)) (spin)"
    code, said = shown(tmp_path, text, "--fuel", "5000")
    assert code == 3
    assert "error[out-of-fuel]" in said
    run = said.partition("llc resume ")[2].split()[0]
    command = [sys.executable, "-c", LLC, "resume", run, "--fuel", "9000", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert '"terminated_by": "fuel"' in done.stdout
    assert "(9,000 ticks)" in done.stdout


def test_a_run_that_got_more_fuel_ends(tmp_path: Path) -> None:
    """What it did is not done again, and its value is the one it would have had."""
    text = '(system:execute_shell_command (command "echo x >> log"))'
    text += "(define (f n) (if (= n 0) 7 (f (- n 1)))) (f 20000)"
    code, said = shown(tmp_path, text, "--fuel", "5000")
    assert code == 3
    run = said.partition("llc resume ")[2].split()[0]
    command = [sys.executable, "-c", LLC, "resume", run, "--fuel", "50000", "--quiet", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, '"value": 7' in done.stdout) == (0, True)
    assert (tmp_path / "log").read_text() == "x\n"


def test_limits_of_a_run_hold_when_it_is_resumed(tmp_path: Path) -> None:
    """Depth and size are recorded; the resumed run catches the same fault."""
    text = """(define (f n) (if (= n 0) 0 (+ 1 (f (- n 1)))))
    (define (spin n) (if (= n 0) nil (spin (- n 1))))
    (define first (try (f 200) (catch e (get e "kind"))))
    (spin 20000)
    (list first (try (f 200) (catch e (get e "kind"))) (try (range 2000) (catch e (get e "kind"))))"""
    code, said = shown(tmp_path, text, "--fuel", "5000", "--max-depth", "100", "--max-size", "1000")
    assert code == 3
    run = said.partition("llc resume ")[2].split()[0]
    command = [sys.executable, "-c", LLC, "resume", run, "--fuel", "100000", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert '"value": ["too-deep", "too-deep", "too-large"]' in done.stdout


def test_limits_come_from_the_environment_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option goes before it; what is no number is refused."""
    monkeypatch.setenv("LLC_MAX_DEPTH", "50")
    text = "(define (f n) (if (= n 0) 'done (car (list (f (- n 1)))))) (f 100)"
    assert "too-deep" in shown(tmp_path, text)[1]
    assert shown(tmp_path, text, "--max-depth", "500") == (0, '"done"\n')
    monkeypatch.setenv("LLC_FUEL", "lots")
    assert shown(tmp_path, text)[0] == 2


def _memory() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _run(text: str) -> tuple[object, int]:
    """A program's value, and by how much memory grew at most while it ran."""
    from llc.vm.machine.machine import Done, OutOfFuel
    from llc.vm.tiered import Machine

    machine = Machine(llc.compile(text, "<expression>"))
    before, most = _memory(), 0
    while True:
        machine.refuel(50_000)
        stop = machine.resume()
        most = max(most, _memory() - before)
        if not isinstance(stop, OutOfFuel):
            assert isinstance(stop, Done)
            return stop.value, most


def test_recursion_takes_little_memory_for_a_frame() -> None:
    """A call that is not last takes less than 300 bytes, however deep it stands."""
    value, most = _run("(define (count n) (if (= n 0) 0 (+ 1 (count (- n 1))))) (count 200000)")
    assert value == 200_000
    assert most < 200_000 * 300


def test_tail_calls_take_no_memory() -> None:
    """Two functions that call each other last, as often as they like, grow by nothing."""
    text = (
        "(define (a n) (if (= n 0) 'end (b (- n 1)))) (define (b n) (if (= n 0) 'end (a (- n 1)))) (a 400000)"
    )
    value, most = _run(text)
    assert value == "end"
    assert most < 4_000_000
