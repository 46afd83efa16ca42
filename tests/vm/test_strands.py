"""Strands: concurrent calls whose order depends only on the order of the answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laws import tried

from llc.vm.code.image import Image
from llc.vm.machine.machine import Done, Effect, Fault, OutOfFuel, Waiting
from llc.vm.machine.snapshot import SnapshotError
from llc.vm.tiered import Machine
from llc.vm.values import bounds

MachineOf = Callable[..., Machine]

# Each item is a command; its strand returns the output.
EACH = """
function main(items) locals(found)
  state start
    parallel closure run() over items -> found then end
  state end
    return found
function run(item) locals(answer)
  state ask
    perform shell map("command", item) -> answer then end
  state end
    return answer
"""


def run_ready(machine: Machine) -> list[Any]:
    """Effects of a machine until no strand can run without an answer."""
    outcomes: list[Any] = []
    while machine.is_ready:
        outcomes.append(machine.resume())
    return outcomes


def restored(machine: Machine) -> Machine:
    """The machine restored from its JSON snapshot, which is unchanged."""
    stored = json.dumps(machine.snapshot())
    copy_ = Machine.restore(Image.from_bytes(machine.image.to_bytes()), json.loads(stored))
    assert json.dumps(copy_.snapshot()) == stored
    return copy_


def value(outcome: Any) -> Any:
    assert isinstance(outcome, Done), outcome
    return outcome.value


# --- effects and answers ----------------------------------------------------------------------


def test_strands_run_concurrently(machine_of: MachineOf) -> None:
    """The strands run in the order of the items, each up to its first effect."""
    machine = machine_of(EACH, [["a", "b", "c"]])
    assert [(effect.seq, effect.args["command"]) for effect in run_ready(machine)] == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
    ]
    assert list(machine.waiting) == [1, 2, 3]
    assert isinstance(machine.resume(), Waiting)


def test_results_are_in_the_order_of_the_items(machine_of: MachineOf) -> None:
    """For any order of answers."""
    machine = machine_of(EACH, [["a", "b", "c"]])
    run_ready(machine)
    assert isinstance(machine.resume(10, 3), Waiting)
    assert isinstance(machine.resume(20, seq=1), Waiting)
    assert list(machine.waiting) == [2]
    assert value(machine.resume(30, 2)) == [20, 30, 10]
    assert machine.waiting == {}


def test_answer_without_a_number_is_for_the_latest_effect(machine_of: MachineOf) -> None:
    """A host that answers immediately need not know about strands."""
    machine = machine_of(EACH, [["a", "b", "c"]])
    outcome = machine.resume()
    commands = []
    while isinstance(outcome, Effect):
        commands.append(outcome.args["command"])
        outcome = machine.resume(outcome.args["command"] * 2)
    assert commands == ["a", "b", "c"]
    assert value(outcome) == ["aa", "bb", "cc"]


def test_no_items_are_no_strands(machine_of: MachineOf) -> None:
    """An empty list and null give the empty list at once."""
    assert value(machine_of(EACH, [[]]).resume()) == []
    assert value(machine_of(EACH, [None]).resume()) == []


def test_answer_to_no_pending_effect_is_an_exception(machine_of: MachineOf) -> None:
    """An unknown or already answered number; the state does not change."""
    machine = machine_of(EACH, [["a", "b"]])
    run_ready(machine)
    with pytest.raises(RuntimeError, match="no effect 3"):
        machine.resume({}, 3)
    machine.resume(1, 1)
    with pytest.raises(RuntimeError, match="no effect 1"):
        machine.resume({}, 1)
    with pytest.raises(TypeError):
        machine.resume(b"", 2)
    assert value(machine.resume(2, 2)) == [1, 2]


def test_null_is_an_answer(machine_of: MachineOf) -> None:
    """`resume(None)` answers, `resume()` does not."""
    machine = machine_of(EACH, [["a", "b"]])
    machine.resume()
    assert isinstance(machine.resume(None), Effect)
    assert value(machine.resume(None)) == [None, None]


# --- snapshots --------------------------------------------------------------------------------


def test_snapshot_contains_all_strands(machine_of: MachineOf) -> None:
    """Some answered, some waiting, some not started."""
    machine = machine_of(EACH, [["a", "b", "c", "d"]])
    machine.resume()
    machine = restored(machine)
    assert [effect.seq for effect in run_ready(machine)] == [2, 3, 4]
    machine = restored(machine)
    machine.resume("second", 2)
    machine = restored(machine)
    assert {seq: effect.args["command"] for seq, effect in machine.waiting.items()} == {
        1: "a",
        3: "c",
        4: "d",
    }
    machine.resume("first", 1)
    machine.resume("fourth", 4)
    assert value(restored(machine).resume("third", 3)) == ["first", "second", "third", "fourth"]


# Nested forks; all strands share one box, each row another one.
NESTED = """
function main(rows) locals(seen, found)
  state start
    seen = box([])
    parallel closure row(seen) over rows -> found then end
  state end
    return list(found, unbox(seen))
function row(cells) captures(seen) locals(mine, found)
  state start
    mine = box(0)
    parallel closure cell(seen, mine) over cells -> found then end
  state end
    return list(found, unbox(mine))
function cell(n) captures(seen, mine) locals(answer)
  state ask
    perform shell map("command", n) -> answer then told
  state told
    setbox seen append(unbox(seen), list(answer))
    setbox mine add(unbox(mine), 1)
    return answer
"""


def test_strands_share_their_boxes_through_snapshots(machine_of: MachineOf) -> None:
    """Nested forks, restored between all answers: one box for all, one for each row."""
    machine = machine_of(NESTED, [[[1, 2], [], [3]]])
    assert len(run_ready(machine)) == 3
    assert [view.items for view in machine.strands()] == [(), (0,), (0, 0), (0, 1), (2,), (2, 0)]
    for seq in (3, 1):
        machine = restored(machine)
        assert isinstance(machine.resume(10 * seq, seq), Waiting)
    assert value(restored(machine).resume(20, 2)) == [[[[10, 20], 2], [[], 0], [[30], 1]], [30, 10, 20]]


def test_snapshot_without_strands_has_no_strand_fields(machine_of: MachineOf) -> None:
    """Before the fork and after it."""
    machine = machine_of(EACH, [["a"]])
    fields = {"format", "program", "program_hash", "seq", "ticks", "effect", "notes", "frames", "heap"}
    assert machine.snapshot().keys() == fields
    machine.resume()
    assert machine.snapshot().keys() == fields | {"strands", "forks", "ready"}
    machine = machine_of(
        EACH.replace("return found", "perform clock {} -> found then last\n state last\n return 1"), [["a"]]
    )
    machine.resume()
    assert isinstance(machine.resume("x"), Effect)
    assert machine.snapshot().keys() == fields


# --- faults -----------------------------------------------------------------------------------

FAILING = """
source 0 "all.sexp"
function main(items) locals(found, fault)
  state start{handler}
    parallel closure each() over items -> found then end @0:2:1-2:9
  state end
    return found
  state failed
    return fault
function each(item) locals(answer)
  state ask
    perform shell map("command", item) -> answer then check
  state check
    branch answer more fine
  state more
    call closure refuse()(answer) -> answer then fine @0:5:1-5:9
  state fine
    return item
function refuse(answer)
  state s
    fail answer @0:7:3-7:9
"""
PLAIN = FAILING.replace("{handler}", "")
HANDLED = FAILING.replace("{handler}", " on fault -> failed(fault)")


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 1, 3), (3, 1, 2)])
def test_fault_is_that_of_the_first_failed_item(machine_of: MachineOf, order: tuple[int, ...]) -> None:
    """First in the order of items, not of time; the other strands run to their ends."""
    machine = machine_of(PLAIN, [["a", "b", "c"]])
    run_ready(machine)
    answers = {1: None, 2: "second", 3: "third"}
    outcome: Any = None
    for seq in order:
        assert outcome is None or isinstance(outcome, Waiting)
        machine = restored(machine)
        outcome = machine.resume(answers[seq], seq)
    assert isinstance(outcome, Fault)
    assert (outcome.kind, outcome.message, outcome.span) == ("user", "second", ("all.sexp", 7, 3, 7, 9))
    assert machine.ended
    assert [view.state for view in machine.frames()] == ["start"]


def test_backtrace_contains_the_frames_of_the_strand(machine_of: MachineOf) -> None:
    """From the forking frames to the failed ones, also after a snapshot."""
    machine = machine_of(PLAIN, [["a", "b"]])
    run_ready(machine)
    machine.resume("no", 1)
    fault = restored(machine).resume(None, 2)
    assert isinstance(fault, Fault)
    assert fault.trace_lines() == [
        "in `main`, state `start` (all.sexp:2:1)",
        "in `each`, state `more` (all.sexp:5:1)",
        "in `refuse`, state `s` (all.sexp:7:3)",
    ]


def test_handler_of_the_fork_gets_the_fault(machine_of: MachineOf) -> None:
    """As a map, with the original span."""
    machine = machine_of(HANDLED, [["a", "b"]])
    run_ready(machine)
    assert isinstance(machine.resume({"kind": "odd", "message": "no", "details": {"n": [1]}}, 1), Waiting)
    fault = value(restored(machine).resume(None, 2))
    assert fault == {"kind": "odd", "message": "no", "span": "all.sexp:7:3", "details": {"n": [1]}}


def test_fault_propagates_through_nested_forks(machine_of: MachineOf) -> None:
    """The outermost handler gets it; each fork first waits for its other strands."""
    machine = machine_of("""
        function main() locals(found, fault)
          state start on fault -> failed(fault)
            parallel closure inner() over [0, 1] -> found then end
          state end
            return found
          state failed
            return get(fault, "message")
        function inner(n) locals(found)
          state start
            parallel closure leaf(n) over [0, 1] -> found then end
          state end
            return found
        function leaf(m) captures(n) locals(x)
          state ask
            perform shell map("command", list(n, m)) -> x then told
          state told
            fail concat("item ", n, m)
    """)
    assert len(run_ready(machine)) == 4
    for seq in (4, 3, 2):
        assert isinstance(machine.resume({}, seq), Waiting)
        machine = restored(machine)
    assert value(machine.resume({}, 1)) == "item 00"


@pytest.mark.parametrize(
    ("callee", "items", "kind"),
    [
        ("5", "[1]", "not-a-function"),
        ("closure none()", "[1, 2]", "arity"),
        ("closure one()", "5", "type-error"),
        ("closure one()", '"text"', "type-error"),
        ("closure one()", "{}", "type-error"),
    ],
)
def test_invalid_callee_is_a_fault_of_the_fork(
    machine_of: MachineOf, callee: str, items: str, kind: str
) -> None:
    """No strand starts and no tick is used."""
    machine = machine_of(f"""
        function main() locals(x, fault)
          state s on fault -> failed(fault)
            parallel ({callee}) over {items} -> x then end
          state end
            return x
          state failed
            return get(fault, "kind")
        function none()
          state s
            return 1
        function one(x)
          state s
            return x
    """)
    assert value(machine.resume()) == kind
    assert machine.ticks == 1


def test_a_long_backtrace_keeps_both_ends(machine_of: MachineOf) -> None:
    """Deep before and after the fork: sixteen frames, and the number of omitted ones."""
    machine = machine_of("""
        function main(n) locals(x)
          state s
            branch n down fork
          state down
            call closure main()(sub(n, 1)) -> x then end
          state fork
            parallel closure deep() over [30] -> x then end
          state end
            return x
        function deep(n) locals(x)
          state s
            branch n down ask
          state down
            call closure deep()(sub(n, 1)) -> x then end
          state ask
            perform clock {} -> x then end
          state end
            fail "far down"
    """, [20])  # fmt: skip
    machine.resume()
    fault = restored(machine).resume({})
    assert isinstance(fault, Fault)
    assert [row[0] for row in fault.backtrace] == ["main"] * 8 + ["deep"] * 8
    assert fault.omitted == 21 + 31 - 16


# --- limits -----------------------------------------------------------------------------------


@pytest.fixture
def few_calls() -> Iterator[None]:
    before = bounds.MAX_CALLS
    bounds.set_bounds(calls=10)
    yield
    bounds.set_bounds(calls=before)


def test_ten_thousand_items(machine_of: MachineOf) -> None:
    """All effects are pending at once; a snapshot of that can be restored."""
    machine = machine_of(EACH, [[str(number) for number in range(10_000)]])
    assert len(run_ready(machine)) == 10_000
    machine = restored(machine)
    for seq in range(10_000, 1, -1):
        assert isinstance(machine.resume(seq, seq), Waiting)
    assert value(machine.resume(1, 1)) == list(range(1, 10_001))


def test_forks_are_nested_without_recursion(machine_of: MachineOf) -> None:
    """A thousand nested forks, with a snapshot inside, and a fault through all of them."""
    text = """
        function main(n) locals(x)
          state s
            branch n more ask
          state more
            parallel closure main() over list(sub(n, 1)) -> x then end
          state end
            return add(first(x), 1)
          state ask
            perform clock {} -> x then told
          state told
            return x
    """
    machine = machine_of(text, [1000])
    machine.resume()
    assert len(machine.frames()) == len(machine.strands()) == 1001
    assert value(restored(machine).resume(5)) == 1005
    machine = machine_of(text.replace("return x\n", "fail x\n"), [3000])
    machine.resume()
    fault = machine.resume("no")
    assert isinstance(fault, Fault)
    assert (fault.message, fault.omitted) == ("no", 3001 - 16)


@pytest.mark.usefixtures("few_calls")
def test_call_limit_counts_all_strands(machine_of: MachineOf) -> None:
    """Nine items and the forking frame are ten calls; one more is too deep, also a call in a strand."""
    run_ready(machine := machine_of(EACH, [["x"] * 9]))
    assert len(machine.waiting) == 9
    fault = machine_of(EACH, [["x"] * 10]).resume()
    assert isinstance(fault, Fault)
    assert (fault.kind, [row[0] for row in fault.backtrace]) == ("too-deep", ["main"])
    machine = machine_of(PLAIN, [["x"] * 9])
    run_ready(machine)
    machine = restored(machine)
    for seq in range(1, 9):
        assert isinstance(machine.resume("calls", seq), Waiting)
    deep = machine.resume("calls", 9)
    assert isinstance(deep, Fault)
    assert deep.kind == "too-deep"


@pytest.mark.usefixtures("few_calls")
def test_ended_strands_do_not_count(machine_of: MachineOf) -> None:
    """Whether they ended with a value or a fault."""
    machine = machine_of("""
        function main() locals(n, x, fault)
          state start
            n = 0
            goto again
          state again on fault -> failed(fault)
            parallel closure each(n) over [0, 1, 2, 3] -> x then next
          state failed
            goto next
          state next
            n = add(n, 1)
            branch lt(n, 40) again end
          state end
            return n
        function each(i) captures(n) locals(x)
          state s
            call closure check()(i, n) -> x then end
          state end
            return x
        function check(i, n) locals(x)
          state s
            perform clock {} -> x then told
          state told
            branch eq(modulo(n, 5), i) no yes
          state no
            fail "no"
          state yes
            return i
    """)
    outcome = machine.resume()
    while isinstance(outcome, Effect):
        outcome = machine.resume({})
        assert machine.outside + len(machine.calls) == sum(len(view.frames) for view in machine.strands())
    assert value(outcome) == 40


def test_fuel_is_shared_by_all_strands(machine_of: MachineOf) -> None:
    """A fork uses its ticks at once; with interruptions the ticks and results are the same."""
    uninterrupted = machine_of(NESTED, [[[1, 2], [3]]])
    run_ready(uninterrupted)
    assert uninterrupted.ticks == 1 + 2 + 3
    machine = machine_of(NESTED, [[[1, 2], [3]]], fuel=0)
    outcomes = []
    while machine.is_ready:
        machine.refuel(1)
        outcomes.append(machine.resume())
        machine = restored(machine)
    assert [outcome.seq for outcome in outcomes if isinstance(outcome, Effect)] == [1, 2, 3]
    assert sum(isinstance(outcome, OutOfFuel) for outcome in outcomes) > 2
    assert machine.ticks == uninterrupted.ticks


# --- inspection -------------------------------------------------------------------------------


def test_frames_are_those_of_the_latest_effect(machine_of: MachineOf) -> None:
    """Including the frames from which its strand was forked; `strands` lists all strands with their
    frames.
    """
    machine = machine_of(NESTED, [[[1, 2], [3]]])
    run_ready(machine)
    for _ in range(2):
        assert [(view.function, view.state) for view in machine.frames()] == [
            ("main", "start"),
            ("row", "start"),
            ("cell", "ask"),
        ]
        assert machine.frames()[-1].slots["n"] == 3
        machine = restored(machine)
    machine.resume({}, 3)
    assert machine.frames()[-1].slots["n"] == 2
    functions = [[view.function for view in machine.frames(count)] for count in (1, 2, 3, 9)]
    assert functions == [["cell"], ["row", "cell"], *[["main", "row", "cell"]] * 2]
    waiting = [(view.items, view.effect.seq) for view in machine.strands() if view.effect is not None]
    assert waiting == [((0, 0), 1), ((0, 1), 2)]
    assert [[frame.function for frame in view.frames] for view in machine.strands()][:2] == [
        ["main"],
        ["row"],
    ]


def test_notes_of_all_strands_are_in_order(machine_of: MachineOf) -> None:
    machine = machine_of("""
        function main() locals(x)
          state s
            parallel closure each() over [1, 2] -> x then end
          state end
            return null
        function each(n) locals(x)
          state s
            note cycle map("cycle", n)
            perform clock {} -> x then end
          state end
            note cycle map("cycle", mul(n, 10))
            return null
    """)
    run_ready(machine)
    machine.resume({}, 2)
    machine.resume({}, 1)
    assert [fields["cycle"] for _, fields in machine.take_notes()] == [1, 2, 20, 10]


# --- errors -----------------------------------------------------------------------------------

BROKEN = """
function main() locals(x)
  state s
    parallel closure each() over [[0, 1], [], null] -> x then end
  state end
    return x
function each(items) locals(x)
  state s
    branch items more wrong
  state more
    parallel closure leaf() over items -> x then end
  state wrong
    call closure refuse()(items) -> x then end
  state end
    return x
function refuse(x)
  state s
    branch is_null(x) no end
  state no
    fail "null"
  state end
    return 1
function leaf(n) locals(x)
  state s
    perform shell map("command", n) -> x then end
  state end
    return x
"""


@pytest.fixture
def stopped(machine_of: MachineOf) -> Machine:
    """Two nested forks; of the outer one, a strand has ended and one has failed."""
    machine = machine_of(BROKEN)
    run_ready(machine)
    return machine


def test_snapshot_before_mutation_is_valid(stopped: Machine) -> None:
    """A rejection below is caused by the mutation."""
    snapshot = restored(stopped).snapshot()
    assert [row["item"] for row in snapshot["strands"]] == [0, 0, 1]
    assert [row["strand"] for row in snapshot["forks"]] == [0, 1]
    assert snapshot["forks"][0]["results"] == [None, 1, None]
    assert snapshot["forks"][0]["fault"]["trace"] == [["each", "wrong"], ["refuse", "no"]]


@pytest.mark.parametrize(
    ("path", "change"),
    [
        (["strands"], None),
        (["strands"], []),
        (["strands", 0], None),
        (["strands", 0, "fork"], 1),
        (["strands", 0, "fork"], -1),
        (["strands", 0, "fork"], True),
        (["strands", 1, "fork"], 0),
        (["strands", 1, "fork"], 2),
        (["strands", 1, "fork"], 99),
        (["strands", 1, "item"], 1),
        (["strands", 1, "item"], 2),
        (["strands", 1, "item"], None),
        (["strands", 1, "frames"], []),
        (["strands", 1, "frames"], None),
        (["strands", 1, "frames", 0, "state"], "end"),
        (["strands", 0, "frames", 0, "state"], "wrong"),
        (["strands", 0, "frames", 0, "state"], "s"),
        (["strands", 1, "effect"], None),
        (["strands", 1, "effect"], 5),
        (["strands", 1, "effect", "seq"], 2),
        (["strands", 1, "effect", "seq"], 0),
        (["strands", 1, "effect", "seq"], 3),
        (["strands", 1, "effect", "kind"], "clock"),
        (["strands", 1, "effect", "args"], 5),
        (["frames", 0, "state"], "end"),
        (["effect"], {"kind": "shell", "args": [0]}),
        (["seq"], 1),
        (["forks"], None),
        (["forks"], []),
        (["forks", 0], 1),
        (["forks", 0, "strand"], 1),
        (["forks", 1, "strand"], 2),
        (["forks", 1, "strand"], 9),
        (["forks", 1, "strand"], None),
        (["forks", 0, "results"], []),
        (["forks", 0, "results"], [None]),
        (["forks", 0, "results"], 5),
        (["forks", 0, "results"], [[99], 1, None]),
        (["forks", 0, "fault"], 5),
        (["forks", 0, "fault", "item"], 0),
        (["forks", 0, "fault", "item"], 3),
        (["forks", 0, "fault", "kind"], None),
        (["forks", 0, "fault", "message"], 1),
        (["forks", 0, "fault", "span"], 1),
        (["forks", 0, "fault", "details"], None),
        (["forks", 0, "fault", "omitted"], -1),
        (["forks", 0, "fault", "at"], 99),
        (["forks", 0, "fault", "trace"], []),
        (["forks", 0, "fault", "trace"], [["each", "wrong"]] * 17),
        (["forks", 0, "fault", "trace", 0], "each"),
        (["forks", 0, "fault", "trace", 0], ["each", "nothing"]),
        (["forks", 0, "fault", "trace", 0], ["nothing", "s"]),
        (["forks", 0, "fault", "trace", 0], [[], "s"]),
        (["ready"], None),
        (["ready"], [0]),
        (["ready"], [1]),
        (["ready"], [2]),
        (["ready"], [9]),
        (["ready"], ["2"]),
    ],
)
def test_inconsistent_strands_are_an_error(stopped: Machine, path: list[Any], change: Any) -> None:
    """Each part must be consistent with the others."""
    snapshot: Any = deepcopy(stopped.snapshot())
    where = snapshot
    for key in path[:-1]:
        where = where[key]
    where[path[-1]] = change
    with pytest.raises(SnapshotError):
        Machine.restore(stopped.image, snapshot)


@pytest.mark.parametrize("field", ["strands", "forks", "ready"])
def test_missing_field_is_an_error(stopped: Machine, field: str) -> None:
    """The three fields belong together."""
    snapshot = stopped.snapshot()
    del snapshot[field]
    if field == "strands":
        # Without strands the snapshot is one strand at an exit that it has not reached yet.
        assert isinstance(Machine.restore(stopped.image, snapshot).resume(), Effect)
        return
    with pytest.raises(SnapshotError):
        Machine.restore(stopped.image, snapshot)


@given(data=st.data())
@settings(max_examples=tried(100), deadline=None, suppress_health_check=list(HealthCheck))
def test_forged_strands_are_rejected_or_run(stopped: Machine, data: st.DataObject) -> None:
    """Parts are replaced by others of the snapshot, removed or duplicated: SnapshotError, or a run to an
    outcome.
    """
    snapshot: Any = deepcopy(stopped.snapshot())
    parts: list[Any] = [None, 0, 1, 2, 3, -1, "s", "end", "more", "leaf", "each", []]
    parts += [snapshot["strands"], *snapshot["strands"], *snapshot["forks"], snapshot["forks"][0]["fault"]]
    for _ in range(data.draw(st.integers(1, 3))):
        where: Any = snapshot
        while True:
            key = data.draw(st.sampled_from(list(where) if isinstance(where, dict) else range(len(where))))
            if isinstance(where[key], dict | list) and where[key] and data.draw(st.integers(0, 3)):
                where = where[key]
                continue
            match data.draw(st.sampled_from(["replace", "remove", "double"])):
                case "replace":
                    where[key] = deepcopy(data.draw(st.sampled_from(parts)))
                case "remove" if len(where) > 1:
                    del where[key]
                case "double" if isinstance(where, list):
                    where.insert(key, deepcopy(where[key]))
            break
    try:
        machine = Machine.restore(stopped.image, snapshot, fuel=200)
    except SnapshotError:
        return
    json.dumps(machine.snapshot())
    answer: tuple[Any, ...] = ()
    for _ in range(200):
        outcome = machine.resume(*answer)
        if isinstance(outcome, Done | Fault | OutOfFuel):
            return
        answer = () if machine.is_ready else ({}, next(iter(machine.waiting)))
    raise AssertionError("it neither ends nor uses fuel")
