"""The machine between two host calls: effects, notes, jumps and results."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from llc.vm.machine.machine import Done, Effect, Fault, OutOfFuel, Waiting
from llc.vm.tiered import Machine

MachineOf = Callable[..., Machine]

ASK = """
function main(name) locals(answer, again)
  state ask
    perform shell map("command", name, "list", list(1, 2)) -> answer then more
  state more
    again = answer
    perform sleep map("seconds", 1) -> answer then end
  state end
    return list(again, answer)
"""


def test_an_effect_stops_the_machine_until_it_is_answered(machine_of: MachineOf) -> None:
    """Effects are numbered from 1 and have plain data; an answer is stored in its slot."""
    machine = machine_of(ASK, ["ls"])
    first = machine.resume()
    assert isinstance(first, Effect)
    assert (first.seq, first.kind, first.args) == (1, "shell", {"command": "ls", "list": [1, 2]})
    assert machine.effect is first
    second = machine.resume({"output": ["a"]})
    assert isinstance(second, Effect)
    assert (second.seq, second.kind, second.args) == (2, "sleep", {"seconds": 1})
    assert isinstance(machine.resume(), Waiting)
    done = machine.resume(None)
    assert isinstance(done, Done)
    assert done.value == [{"output": ["a"]}, None]
    assert machine.effect is None


def test_a_host_mistake_is_an_exception_and_changes_nothing(machine_of: MachineOf) -> None:
    """An answer to another or no effect, and resuming after the end."""
    with pytest.raises(ValueError, match="takes 1 arguments"):
        machine_of(ASK)
    machine = machine_of(ASK, ["ls"])
    with pytest.raises(RuntimeError, match="no effect"):
        machine.resume({"output": ""})
    machine.resume()
    with pytest.raises(TypeError):
        machine.resume({"output": b"bytes"})
    assert isinstance(machine.resume({"output": ""}), Effect)
    assert isinstance(machine.resume({}), Done)
    with pytest.raises(RuntimeError, match="ended"):
        machine.resume()
    with pytest.raises(RuntimeError, match="ended"):
        machine.snapshot()


def test_notes_are_kept_in_order_until_taken(machine_of: MachineOf) -> None:
    """Notes do not stop the machine; taking them removes them."""
    machine = machine_of("""
        function main() locals(x)
          state one
            note state_enter map("state", "one", "iteration", 1)
            note route map("from", "one", "to", list("two"))
            perform clock map() -> x then two
          state two
            note cycle map("cycle", 1)
            return null
    """)
    machine.resume()
    assert machine.take_notes() == [
        ("state_enter", {"state": "one", "iteration": 1}),
        ("route", {"from": "one", "to": ["two"]}),
    ]
    assert machine.take_notes() == []
    machine.resume(None)
    assert machine.take_notes() == [("cycle", {"cycle": 1})]


@pytest.mark.parametrize("value", ["null", "false", "0", "0.0", '""', "[]", "{}"])
def test_false_values_take_the_second_branch(machine_of: MachineOf, value: str) -> None:
    """null, false, both zeros and everything empty."""
    text = "function main()\n state s\n branch %s yes no\n state yes\n return 1\n state no\n return 2"
    outcome = machine_of(text % value).resume()
    assert isinstance(outcome, Done)
    assert outcome.value == 2


@pytest.mark.parametrize("value", ["true", "-1", "nan", '"0"', "[null]", '{"a": null}', "box(null)"])
def test_all_other_values_take_the_first(machine_of: MachineOf, value: str) -> None:
    """All other values are true, including boxes and NaN."""
    text = "function main()\n state s\n branch %s yes no\n state yes\n return 1\n state no\n return 2"
    outcome = machine_of(text % value).resume()
    assert isinstance(outcome, Done)
    assert outcome.value == 1


@pytest.mark.parametrize(("subject", "expected"), [('"a"', 1), ('"b"', 2), ('"c"', 3), ("1", 3), ("[1]", 3)])
def test_switch_compares_strings(machine_of: MachineOf, subject: str, expected: int) -> None:
    """The case equal to the subject is taken; other strings and other types take the default."""
    outcome = machine_of(f"""
        function main()
          state s
            switch {subject} {{"a" -> a, "b" -> b, else -> c}}
          state a
            return 1
          state b
            return 2
          state c
            return 3
    """).resume()
    assert isinstance(outcome, Done)
    assert outcome.value == expected


def test_frames_show_where_the_program_is(machine_of: MachineOf) -> None:
    """Function, state and the assigned slots of each frame, innermost last."""
    machine = machine_of("""
        function main() locals(x, unset)
          state start
            x = list(1)
            call closure inner()(2) -> x then end
          state end
            return x
        function inner(n) locals(y)
          state ask
            perform clock map() -> y then end
          state end
            return y
    """)
    machine.resume()
    assert [(view.function, view.state, view.slots) for view in machine.frames()] == [
        ("main", "start", {"x": (1,)}),
        ("inner", "ask", {"n": 2}),
    ]


@pytest.mark.parametrize("states", [10, 5_000])
def test_only_states_that_are_entered_are_decoded(machine_of: MachineOf, states: int) -> None:
    """A step has the same cost in a large program as in a small one."""
    unused = "\n".join(f"state s{i}\n goto s{i + 1}" for i in range(states))
    machine = machine_of(f"""
        function main() locals(i)
          state first
            i = 0
            goto loop
          state loop
            i = add(i, 1)
            branch lt(i, 5) loop last
          {unused}
          state s{states}
            goto last
          state last
            return i
    """)
    assert isinstance(machine.resume(), Done)
    (main,) = machine.functions.values()
    assert len(main.blocks) == 3


def test_only_functions_that_are_called_are_loaded(machine_of: MachineOf) -> None:
    """The start time does not depend on the number of functions; machines of an image share loaded
    functions.
    """
    unused = "\n".join(f"function f{i}()\n state s\n return {i}" for i in range(100))
    machine = machine_of(f"""
        function main()
          state only
            return 1
        {unused}
    """)
    assert isinstance(machine.resume(), Done)
    assert len(machine.functions) == 1
    assert Machine(machine.image).functions is machine.functions


def test_long_run_uses_constant_memory(machine_of: MachineOf) -> None:
    """Frames, stack and notes do not grow with jumps, effects and answers."""
    machine = machine_of(
        """
        function main() locals(i, x)
          state first
            i = 0
            goto loop
          state loop
            i = add(i, 1)
            note cycle map("cycle", i)
            branch eq(i, 20000) last ask
          state ask
            perform clock map("i", i) -> x then loop
          state last
            return i
        """,
        fuel=1000,
    )
    outcome: Any = machine.resume()
    while not isinstance(outcome, Done):
        assert len(machine.take_notes()) <= 1001
        assert (len(machine.frames()), len(machine.stack)) == (1, 0)
        if isinstance(outcome, OutOfFuel):
            machine.refuel(1000)
            outcome = machine.resume()
        else:
            outcome = machine.resume({"i": outcome.args["i"]})
    assert outcome.value == 20000


def test_run_imports_no_heavy_modules() -> None:
    """Starting a compiled loop imports neither attrs nor typing nor similar modules."""
    code = """
import sys
before = set(sys.modules)
import llc.vm.code.image, llc.vm.machine.machine, llc.vm.machine.snapshot
print(*sorted(set(sys.modules) - before))
"""
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, env=_environment()
    )
    loaded = set(ran.stdout.split())
    assert "llc.vm.machine.machine" in loaded, ran.stderr
    heavy = {"attr", "attrs", "typing", "dataclasses", "inspect", "pathlib", "logging", "asyncio", "hashlib"}
    heavy |= {"lark", "yaml", "typer", "rich", "anthropic", "jq", "re2", "importlib.metadata", "subprocess"}
    assert not loaded & heavy


def _environment() -> dict[str, str]:
    """An environment in which `llc` is found without the site module."""
    import os
    import tempfile

    import llc

    folder = tempfile.mkdtemp()
    os.symlink(os.path.dirname(os.path.abspath(llc.__file__)), os.path.join(folder, "llc"))
    return {**os.environ, "PYTHONPATH": folder}


def test_repr_of_outcomes(machine_of: MachineOf) -> None:
    """For logs and failing tests."""
    machine = machine_of(ASK, ["ls"], fuel=1)
    assert repr(machine.resume()) == "OutOfFuel()"
    machine.refuel(None)
    assert repr(machine.resume()) == "Effect(1, 'shell', {'command': 'ls', 'list': [1, 2]})"
    assert repr(machine.resume()) == "Waiting()"
    machine.resume(None)
    assert repr(machine.resume(2)) == "Done([None, 2])"
    assert repr(Fault("user", "no", ("f", 1, 2, 1, 3))) == "Fault('user', 'no', 'f:1:2')"
