"""Programs of the simulation, and their actions.

An action is `act KEY SECONDS EXIT BYTES AFTER…`: it takes this time, writes this number of bytes and ends
with this exit code; AFTER names the actions whose results the program had when it requested this one.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from llc.frontend.compile import compile_file
from llc.ir.compile_options import CompileOptions
from llc.vm.code.emit import emit
from llc.vm.code.image import Image

CHAIN = """\
name: chain
initial: one
context: {n: 0}
states:
  one: {action: act one 0.2 0 0, capture: first, on_success: two, on_failure: bad}
  two: {action: act two 0.05 1 0 one, on_success: bad, on_failure: three}
  three: {action: act three 3 0 0 two, timeout: 60, next: four}
  four: {action: act four 0.01 0 100000 three, next: five}
  five: {action: act five 0.01 0 0 four, capture: last, next: done}
  done: {terminal: true}
  bad: {terminal: true, status: failure}
"""
COUNT = """\
name: count
initial: round
states:
  round: {action: "act round-${state.iteration} 0.02 1 200", on_success: done, on_failure: round}
  done: {terminal: true}
max_iterations: 12
"""
SLEEPS = """\
(define (note k) (get-field (system:execute_shell_command (string-append "act " k)) 'exit_code))
(begin
  (note "a 0.1 0 0")
  (sleep 20)
  (let ((x (note "b 0.1 3 0 a")))
    (begin (sleep 0.5) (list x (note "c 0.3 0 0 b")))))
"""
SIDE = """\
(define (go k) (get-field (system:execute_shell_command (string-append "act " k)) 'exit_code))
(let ((xs (parallel-map go (list "p1 0.3 1 0" "p2 0.1 2 0" "p3 2 3 70000" "p4 0.01 4 0"))))
  (let ((y (go "q 0.1 5 0 p1 p2 p3 p4")))
    (append xs (list y (go "r 0.1 6 0 q")))))
"""
LONG = """\
(define (go i) (get-field (system:execute_shell_command
    (string-append "act s" (to-string i) " 0.005 0 40000 s" (to-string (- i 1)))) 'exit_code))
(loop ((i 1) (sum 0)) (if (> i 20) sum (recur (+ i 1) (+ sum i (go i)))))
"""
OUTPUTS = """\
(define (note k) (get-field (system:execute_shell_command (string-append "act " k)) 'exit_code))
(define (later k) (begin (sleep 2) (note k)))
(let ((x (note "same-1 0.05 1 70000")))
  (let ((y (later "same-2 0.05 2 70000 same-1")))
    (let ((z (later "other 0.05 3 40000 same-1 same-2")))
      (list x y z (note "end 0.05 4 0 other")))))
"""
FLOOD = """\
(define (note k) (get-field (system:execute_shell_command (string-append "act " k)) 'exit_code))
(let ((x (note "flood-1 0.2 1 1200000")))
  (list x (note "flood-2 0.1 2 1100000 flood-1")))
"""
TEXTS = {
    "chain": (CHAIN, ".yaml"),
    "count": (COUNT, ".yaml"),
    "sleeps": (SLEEPS, ".sexp"),
    "side": (SIDE, ".sexp"),
    "long": (LONG, ".sexp"),
    "outputs": (OUTPUTS, ".sexp"),
    "flood": (FLOOD, ".sexp"),
}


@cache
def image_of(name: str, copy: int) -> Image:
    """Image of a program, as the loop `name-copy`."""
    text, suffix = TEXTS[name]
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}-{copy}{suffix}"
        path.write_text(text.replace(f"name: {name}", f"name: {name}-{copy}"), "utf-8")
        return Image.from_bytes(emit(compile_file(str(path), CompileOptions()).program).to_bytes())
