"""Compilation throughput: a loop and a flow of about the same size."""

from __future__ import annotations

import loops
from measure import Contestant, take_turns
from place import Place
from report import RATE, Section, row
from sizes import Sizes

_UNIT = """\
; Step {number}: what there is is looked through, and a plan made of it.
(define (step-{number} input iteration)
  (let* ((plan (assoc "plan" (list (cons "plan" input) (cons "number" {number}))))
         (wanted (list input iteration "make \\"test-{number}\\"" 30.5)))
    (if (and (= (length wanted) 4) (not (null? plan)))
        (list 'stop wanted)
        `(continue ,plan ,@(list wanted {number})))))

"""


def section(place: Place, sizes: Sizes) -> Section:
    found = Section(
        name="compiling",
        title="Compiling, both languages",
        about=(
            "A loop of states as in `scale`, and a flow of functions that an expression calls one after "
            "another, each about one megabyte. `llc compile -o x.llb` is the whole command, including its"
            " start. The phases of the flow are processor time in a separate process; for the phases of "
            "the loop see `scale`."
        ),
    )
    functions = max(2, sizes.text_bytes // len(_UNIT))
    loop, flow = loops.machine(sizes.states, sizes.states), flow_of(functions)
    paths = {"loop": place.write_loop("large", loop), "flow": place.write_loop("wide", flow, ".sexp")}
    target = place.inside("x.llb")

    def compiled(path: str) -> Contestant:
        return lambda: place.seconds([*place.llc, "compile", path, "-o", target])

    turns = take_turns({name: compiled(path) for name, path in paths.items()}, sizes.compile_rounds)
    for name, unit, count, text in (
        ("loop", "states", sizes.states, loop),
        ("flow", "definitions", functions, flow),
    ):
        lines = text.count("\n")
        what = f"a {name} of {len(text) / 1e6:.2g} MB"
        found.add(
            row(f"{what}: {unit} a second", [count / seconds for seconds in turns[name]], RATE),
            row(f"{what}: lines a second", [lines / seconds for seconds in turns[name]], RATE),
        )
    phases = [place.answer("compile_phases.py", paths["flow"]) for _ in range(sizes.compile_rounds)]
    found.add(*(row(f"phase of the flow: {name}", [taken[name] for taken in phases]) for name in phases[0]))
    return found


def flow_of(functions: int) -> str:
    """Return a flow with functions and an expression that calls each of them."""
    numbers = range(functions)
    calls = "".join(f"  (step-{number} '(1 2) {number})\n" for number in numbers)
    return "".join(_UNIT.format(number=number) for number in numbers) + f"(begin\n{calls})\n"
