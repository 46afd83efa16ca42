"""Comparison of this checkout with another one: the same commands, measured in turns."""

from __future__ import annotations

import shutil
from functools import partial
from resource import RUSAGE_CHILDREN, getrusage

import loops
import programs
from measure import take_turns
from place import Place
from report import Section, row
from sizes import Sizes
from throughput import flow_of

# A state whose command uses a value that is only known when it runs, and a variable of the shell.
_SHELL_STATE = """\
  s{number}:
    action: 'n=$(wc -l < ${{captured.c.output:default=x}}); if [ "$n" -lt {number} ]; then echo more; fi'
    capture: c
    on_success: s{following}
    on_failure: done
"""
_UNCACHED = "`llc run` of three steps, not in the cache"
_SUCCESS, _LIMIT = 0, 3


def section(place: Place, other: Place, sizes: Sizes) -> Section:
    found = Section(
        name="against",
        title="This checkout against another",
        about=(
            "Whole commands in new processes, alternately of the two installations; the peer is the other "
            "one. Figures are processor time of the command and of the processes that it starts, which "
            "depends less than elapsed time on what else the machine does. Compiling and programs include "
            "the start of the process."
        ),
    )
    for each in (place, other):
        _write(each, sizes)
    for what, words in list(_commands(sizes).items())[: sizes.against_commands]:
        cost = {each.folder: partial(_cost, each, words, what == _UNCACHED) for each in (place, other)}
        turns = take_turns(cost, sizes.against_rounds)
        found.add(row(what, turns[place.folder], peer=("the other", turns[other.folder])))
    return found


def _cost(place: Place, words: list[str], is_first: bool) -> float:
    """Processor time of a command. is_first: without compiled loops in the cache."""
    if is_first:
        shutil.rmtree(place.inside(".loops", ".cache"), ignore_errors=True)
    before = getrusage(RUSAGE_CHILDREN)
    place.seconds([*place.llc, *words], (_SUCCESS, _LIMIT))
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _commands(sizes: Sizes) -> dict[str, list[str]]:
    steps, states = sizes.against_steps, sizes.against_states
    return {
        "`llc --help`": ["--help"],
        "`llc status`": ["status"],
        "`llc validate` of three steps": ["validate", "three"],
        _UNCACHED: ["run", "three", "-q"],
        "`llc run` of three steps, from the cache": ["run", "three", "-q"],
        f"{steps} steps of `true`": ["run", "steps", "-q"],
        f"{steps * 20} steps without an action": ["run", "decisions", "-q"],
        f"compiling {states} states": ["compile", ".loops/states.yaml", "-o", "x.llb"],
        f"compiling {states} states with shell variables": ["compile", ".loops/shell.yaml", "-o", "x.llb"],
        f"compiling {states // 4} functions": ["compile", ".loops/flow.sexp", "-o", "x.llb"],
        **{f"program: {name}": ["run", _file(name), "-q"] for name in programs.PROGRAMS},
    }


def _write(place: Place, sizes: Sizes) -> None:
    states = sizes.against_states
    place.write_loop("three", loops.THREE_STEPS)
    place.write_loop("steps", loops.repeated("true", sizes.against_steps))
    place.write_loop("decisions", loops.decisions(sizes.against_steps * 20))
    place.write_loop("states", loops.machine(states, states))
    shell = "".join(_SHELL_STATE.format(number=number, following=number + 1) for number in range(states))
    last = f"  s{states}: {{action: 'true', next: done}}\n  done: {{terminal: true}}\n"
    place.write_loop("shell", f"name: shell\ninitial: s0\nstates:\n{shell}{last}")
    place.write_loop("flow", flow_of(states // 4), ".sexp")
    for name, (text, _, whole) in programs.PROGRAMS.items():
        place.write_loop(_file(name), text.format(size=programs.size_of(whole, sizes)), ".sexp")


def _file(program: str) -> str:
    return program.replace(",", "").replace(" ", "-")
