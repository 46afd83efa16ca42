"""`llc repl`: piped input, commands and a real terminal."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
import terminals

LLC = "import sys\nfrom llc.runtime.cli.entry import main\nsys.exit(main())"


def repl(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A session that reads a text from its standard input."""
    return subprocess.run(
        [sys.executable, "-c", LLC, "repl", *options],
        input=text,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# --- piped input ------------------------------------------------------------------------------


def test_stdout_has_only_values(tmp_path: Path) -> None:
    """Notices, log messages and effects go to standard error."""
    done = repl(tmp_path, '(define x 1)\n(log-message "hello")\n(define x 2)\n(list x "a" (quote b))\n')
    assert done.stdout.splitlines()[-1] == '(2 "a" b)'
    assert "hello" not in done.stdout
    assert "hello" in done.stderr
    assert "x is replaced" in done.stderr
    assert done.returncode == 0


def test_the_exit_code_is_that_of_the_last_input(tmp_path: Path) -> None:
    """A fault or a compile error of the last input gives 1; earlier errors do not count."""
    assert repl(tmp_path, "(/ 1 0)\n").returncode == 1
    assert repl(tmp_path, "(/ 1 0)\n; that was all\n\n").returncode == 1
    assert repl(tmp_path, "(/ 1 0)\n7\n").returncode == 0
    assert repl(tmp_path, "(undefined-thing)").returncode == 1
    assert repl(tmp_path, "(+ 1").returncode == 1
    assert repl(tmp_path, "(exit 5)\n1\n").returncode == 5
    assert repl(tmp_path, ":quit\n(/ 1 0)\n").returncode == 0
    assert repl(tmp_path, "").returncode == 0


def test_a_form_is_evaluated_when_it_is_complete(tmp_path: Path) -> None:
    """A form of several lines is evaluated after its last line, before the end of the input."""
    process = subprocess.Popen(
        [sys.executable, "-c", LLC, "repl"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("(+ 1\n")
    process.stdin.write("   2)\n")
    process.stdin.flush()
    assert process.stdout.readline() == "3\n"
    process.stdin.close()
    assert process.wait(30) == 0
    process.stdout.close()


def test_errors_mark_the_place_in_the_input(tmp_path: Path) -> None:
    """Earlier inputs are quoted too, as in `llc run -e`."""
    done = repl(tmp_path, '(define (half x)\n  (/ x 2))\n(half "a")\n(get-field 5 "a")\n')
    assert "  --> <input 1>:2:3\n  |\n2 |   (/ x 2))\n  |   ^^^^^^^ here" in done.stderr
    assert "--> <input 3>:1:1" in done.stderr


def test_commands(tmp_path: Path) -> None:
    """Each command prints its result; an unknown command gets a suggestion."""
    (tmp_path / "lib.sexp").write_text("(define (f x) (g x))\n(define (g x) (* x x))\n(f 3)\n")
    done = repl(tmp_path, ":load lib.sexp\n(f 5)\n:env\n:doc map\n:reset\n(f 1)\n")
    assert done.stdout.startswith("25\nf  (f x)\ng  (g x)\nit  25\n")
    assert "unbound-name" in done.stderr
    assert "not bound yet" not in done.stderr
    done = repl(tmp_path, ":hlep\n")
    assert "did you mean `:help`?" in done.stderr
    assert done.returncode == 1
    assert repl(tmp_path, ":load nothing.sexp\n").returncode == 1
    assert ":disasm" in repl(tmp_path, ":help\n").stdout


def test_load_stops_at_the_first_error(tmp_path: Path) -> None:
    """Definitions before the error remain; the error has the place in the file."""
    (tmp_path / "bad.sexp").write_text("(define a 1)\n(/ a 0)\n(define b 2)\n")
    done = repl(tmp_path, ":load bad.sexp\na\nb\n")
    assert done.stdout == "1\n"
    assert "--> bad.sexp:2:1" in done.stderr


def test_why_shows_the_backtrace_with_source_lines(tmp_path: Path) -> None:
    """The innermost call is first; a later fault replaces the backtrace."""
    done = repl(tmp_path, "(define (f x) (+ 1 (g x)))\n(define (g x) (/ 1 x))\n(f 0)\n:why\n")
    places = re.findall(r"--> (.+)", done.stdout)
    assert places == ["<input 2>:1:15", "<input 2>:1:15", "<input 1>:1:20", "<input 3>:1:1"]
    assert done.stdout.count("^") >= 4
    assert "no form has failed" in repl(tmp_path, ":why\n").stdout


def test_limits_apply_to_each_form(tmp_path: Path) -> None:
    """Fuel, depth and size, as for a run."""
    text = "(define (f n) (+ 1 (f n)))\n(f 0)\n(range 5000)\n(define (s) (s))\n(s)\n(+ 1 1)\n"
    done = repl(tmp_path, text, "--fuel", "100000", "--max-depth", "100", "--max-size", "1000")
    assert [*re.findall(r"error\[([\w-]+)\]", done.stderr)] == ["too-deep", "too-large", "out-of-fuel"]
    assert done.stdout == "2\n"


# --- a terminal -------------------------------------------------------------------------------


class Terminal:
    """A session at a pseudo-terminal, in its own project."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.state = folder / "state"
        settings = {"XDG_STATE_HOME": str(self.state), "NO_COLOR": "1", **env}
        self.child = terminals.spawn("repl", folder=folder, **settings)
        self.prompt()

    def prompt(self) -> None:
        self.child.expect("llc>")

    def evaluate(self, text: str, expected: str) -> None:
        """Type a line; its result is a line that matches `expected`."""
        self.child.send(text + "\r")
        self.child.expect(expected + "\r\n")
        self.prompt()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.child.close(force=True)


def test_enter_continues_an_open_form(terminal: Terminal) -> None:
    """Enter on an open form starts an indented line; on a complete form it evaluates the form."""
    terminal.child.send("(define (f x)\r")
    terminal.child.send("(* x 2))\r")
    terminal.child.expect("f is defined")
    terminal.prompt()
    terminal.evaluate("(f 21)", "42")
    history = (terminal.state / "llc" / "repl_history").read_text()
    assert "+(define (f x)\n+  (* x 2))\n" in history


@pytest.mark.parametrize("code", ["[96;14;13M", "[96;14M", "[;M", "[<0;5M", "[1;2;3;4M", "[M ab"])
def test_mouse_events_are_ignored(terminal: Terminal, code: str) -> None:
    """Well-formed and malformed escape sequences of a mouse have no effect."""
    terminal.child.send(f"\x1b{code}")
    terminal.child.send("(+ 20 22)\r")
    terminal.child.expect("42\r\n")
    assert "exception" not in terminal.child.before
    terminal.prompt()


def test_ctrl_c_interrupts_evaluation_and_keeps_the_session(terminal: Terminal, tmp_path: Path) -> None:
    """An endless program, then a shell command, whose process ends; definitions remain."""
    terminal.evaluate("(define (spin n) (spin (+ n 1)))", "spin is defined")
    terminal.child.send('(begin (log-message "it turns") (spin 0))\r')
    terminal.child.expect("it turns\r\n")
    terminal.child.sendintr()
    terminal.child.expect("interrupted")
    terminal.prompt()
    terminal.child.send('(system:execute_shell_command (command "echo $$ > pid; sleep 60"))\r')
    pid = tmp_path / "pid"
    for _ in range(300):
        if pid.exists() and pid.read_text().strip():
            break
        time.sleep(0.1)
    terminal.child.sendintr()
    terminal.child.expect("interrupted")
    terminal.prompt()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    terminal.evaluate("spin", "#<function spin>")


def test_ctrl_c_discards_the_input_and_ctrl_d_ends_the_session(terminal: Terminal) -> None:
    terminal.child.send("(+ 1")
    terminal.child.sendintr()
    terminal.prompt()
    terminal.evaluate("(+ 2 3)", "5")
    terminal.child.sendeof()
    assert terminals.exit_code(terminal.child) == 0


def test_names_are_completed_by_tab(terminal: Terminal) -> None:
    """Names of the library and names defined in the session."""
    terminal.evaluate("(define (my-own-function x) (* 3 x))", "my-own-function is defined")
    terminal.child.send("(my-own\t")
    terminal.evaluate(" 4)", "12")
    terminal.child.send("(string-app\t")
    terminal.evaluate(' "a" "b")', '"ab"')


def test_the_history_is_private(terminal: Terminal) -> None:
    """Only its owner can read the history; the next session starts with it."""
    terminal.evaluate("(+ 40 2)", "42")
    terminal.child.sendeof()
    terminal.child.expect(pexpect.EOF)
    path = terminal.state / "llc" / "repl_history"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    second = Terminal(terminal.state.parent)
    second.child.send("\x1b[A\r")
    second.child.expect("42\r\n")
    second.child.close(force=True)


def test_no_color_disables_colours(tmp_path: Path) -> None:
    for env, expected in ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True):
        terminal = Terminal(tmp_path, **env)
        terminal.child.send('(string-append "a" "b")\r')
        terminal.child.expect('"ab"\r\n')
        shown = terminal.child.before
        assert isinstance(shown, str)
        assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]", shown)) == expected
        terminal.child.close(force=True)


def test_exit_ends_the_session(terminal: Terminal) -> None:
    """The exit code is the argument of `exit`."""
    terminal.child.send("(exit 3)\r")
    assert terminals.exit_code(terminal.child) == 3
