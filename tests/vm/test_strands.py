"""Strands: concurrent calls whose order depends only on the order of the answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llc.vm.code.image import Image
from llc.vm.machine.machine import Done, Effect, Fault, OutOfFuel, Waiting
from llc.vm.machine.snapshot import SnapshotError
from llc.vm.tiered import Machine
from llc.vm.values import bounds

MachineOf = Callable[..., Machine]

# Each item is a command; a strand gives its output.
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


def drained(machine: Machine) -> list[Any]:
    """What a machine gives until nothing can run without an answer."""
    outcomes: list[Any] = []
    while machine.is_ready:
        outcomes.append(machine.resume())
    return outcomes


def moved(machine: Machine) -> Machine:
    """The machine elsewhere; its snapshot stays what it was."""
    stored = json.dumps(machine.snapshot())
    again = Machine.restore(Image.from_bytes(machine.image.to_bytes()), json.loads(stored))
    assert json.dumps(again.snapshot()) == stored
    return again


def value(outcome: Any) -> Any:
    assert isinstance(outcome, Done), outcome
    return outcome.value


# --- asking and answering ---------------------------------------------------------------------


def test_all_items_ask_before_one_is_answered(machine_of: MachineOf) -> None:
    """The strands run in the order of the items, each until it asks."""
    machine = machine_of(EACH, [["a", "b", "c"]])
    assert [(effect.seq, effect.args["command"]) for effect in drained(machine)] == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
    ]
    assert list(machine.waiting) == [1, 2, 3]
    assert isinstance(machine.resume(), Waiting)


def test_results_stand_in_the_order_of_the_items(machine_of: MachineOf) -> None:
    """Whatever the order of the answers."""
    machine = machine_of(EACH, [["a", "b", "c"]])
    drained(machine)
    assert isinstance(machine.resume(10, 3), Waiting)
    assert isinstance(machine.resume(20, seq=1), Waiting)
    assert list(machine.waiting) == [2]
    assert value(machine.resume(30, 2)) == [20, 30, 10]
    assert machine.waiting == {}


def test_a_host_that_answers_at_once_need_not_know_of_strands(machine_of: MachineOf) -> None:
    """An answer without a number is for the effect that was asked for last."""
    machine = machine_of(EACH, [["a", "b", "c"]])
    outcome = machine.resume()
    asked = []
    while isinstance(outcome, Effect):
        asked.append(outcome.args["command"])
        outcome = machine.resume(outcome.args["command"] * 2)
    assert asked == ["a", "b", "c"]
    assert value(outcome) == ["aa", "bb", "cc"]


def test_no_items_are_no_strands(machine_of: MachineOf) -> None:
    """An empty list, and null, give the empty list at once."""
    assert value(machine_of(EACH, [[]]).resume()) == []
    assert value(machine_of(EACH, [None]).resume()) == []


def test_an_answer_to_what_does_not_wait_is_the_hosts_mistake(machine_of: MachineOf) -> None:
    """A number that was never given, one that was answered; nothing has changed."""
    machine = machine_of(EACH, [["a", "b"]])
    drained(machine)
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


def test_a_snapshot_holds_all_strands(machine_of: MachineOf) -> None:
    """Taken with some answered, some waiting, some not begun."""
    machine = machine_of(EACH, [["a", "b", "c", "d"]])
    machine.resume()
    machine = moved(machine)
    assert [effect.seq for effect in drained(machine)] == [2, 3, 4]
    machine = moved(machine)
    machine.resume("second", 2)
    machine = moved(machine)
    assert {seq: effect.args["command"] for seq, effect in machine.waiting.items()} == {
        1: "a",
        3: "c",
        4: "d",
    }
    machine.resume("first", 1)
    machine.resume("fourth", 4)
    assert value(moved(machine).resume("third", 3)) == ["first", "second", "third", "fourth"]


# Strands fork again; a box is shared by all, a function by a few.
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
    """Forks inside forks, moved between all answers: one box for all, one for each row."""
    machine = machine_of(NESTED, [[[1, 2], [], [3]]])
    assert len(drained(machine)) == 3
    assert [view.items for view in machine.strands()] == [(), (0,), (0, 0), (0, 1), (2,), (2, 0)]
    for seq in (3, 1):
        machine = moved(machine)
        assert isinstance(machine.resume(10 * seq, seq), Waiting)
    assert value(moved(machine).resume(20, 2)) == [[[[10, 20], 2], [[], 0], [[30], 1]], [30, 10, 20]]


def test_a_snapshot_without_strands_says_nothing_of_them(machine_of: MachineOf) -> None:
    """Before the fork and after it, it has the fields it always had."""
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
def test_the_first_item_that_failed_is_the_fault(machine_of: MachineOf, order: tuple[int, ...]) -> None:
    """Whichever failed first; the others go on to their ends."""
    machine = machine_of(PLAIN, [["a", "b", "c"]])
    drained(machine)
    answers = {1: None, 2: "second", 3: "third"}
    outcome: Any = None
    for seq in order:
        assert outcome is None or isinstance(outcome, Waiting)
        machine = moved(machine)
        outcome = machine.resume(answers[seq], seq)
    assert isinstance(outcome, Fault)
    assert (outcome.kind, outcome.message, outcome.span) == ("user", "second", ("all.sexp", 7, 3, 7, 9))
    assert machine.ended
    assert [view.state for view in machine.frames()] == ["start"]


def test_the_backtrace_goes_on_into_the_strand(machine_of: MachineOf) -> None:
    """From the frames that forked to those that failed, also after a snapshot."""
    machine = machine_of(PLAIN, [["a", "b"]])
    drained(machine)
    machine.resume("no", 1)
    fault = moved(machine).resume(None, 2)
    assert isinstance(fault, Fault)
    assert fault.trace_lines() == [
        "in `main`, state `start` (all.sexp:2:1)",
        "in `each`, state `more` (all.sexp:5:1)",
        "in `refuse`, state `s` (all.sexp:7:3)",
    ]


def test_a_handler_where_they_were_forked_gets_the_fault(machine_of: MachineOf) -> None:
    """As a map, with the place where it first happened."""
    machine = machine_of(HANDLED, [["a", "b"]])
    drained(machine)
    assert isinstance(machine.resume({"kind": "odd", "message": "no", "details": {"n": [1]}}, 1), Waiting)
    found = value(moved(machine).resume(None, 2))
    assert found == {"kind": "odd", "message": "no", "span": "all.sexp:7:3", "details": {"n": [1]}}


def test_a_fault_goes_through_forks_inside_forks(machine_of: MachineOf) -> None:
    """To the outermost handler; on its way it waits for the others at each fork."""
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
    assert len(drained(machine)) == 4
    for seq in (4, 3, 2):
        assert isinstance(machine.resume({}, seq), Waiting)
        machine = moved(machine)
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
def test_what_cannot_be_called_fails_where_it_stands(
    machine_of: MachineOf, callee: str, items: str, kind: str
) -> None:
    """Before any strand begins: no tick, no strand."""
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
    """Deep before the fork and deep after it: sixteen frames, and how many stood between."""
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
    fault = moved(machine).resume({})
    assert isinstance(fault, Fault)
    assert [row[0] for row in fault.backtrace] == ["main"] * 8 + ["deep"] * 8
    assert fault.omitted == 21 + 31 - 16


# --- bounds -----------------------------------------------------------------------------------


@pytest.fixture
def few_calls() -> Iterator[None]:
    before = bounds.MAX_CALLS
    bounds.set_bounds(calls=10)
    yield
    bounds.set_bounds(calls=before)


def test_ten_thousand_items(machine_of: MachineOf) -> None:
    """All wait at once; a snapshot of that moves."""
    machine = machine_of(EACH, [[str(number) for number in range(10_000)]])
    assert len(drained(machine)) == 10_000
    machine = moved(machine)
    for seq in range(10_000, 1, -1):
        assert isinstance(machine.resume(seq, seq), Waiting)
    assert value(machine.resume(1, 1)) == list(range(1, 10_001))


def test_forks_are_nested_without_recursion(machine_of: MachineOf) -> None:
    """A thousand forks inside one another, with a snapshot inside, and a fault through them all."""
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
    assert value(moved(machine).resume(5)) == 1005
    machine = machine_of(text.replace("return x\n", "fail x\n"), [3000])
    machine.resume()
    fault = machine.resume("no")
    assert isinstance(fault, Fault)
    assert (fault.message, fault.omitted) == ("no", 3001 - 16)


@pytest.mark.usefixtures("few_calls")
def test_the_bound_on_calls_is_for_all_strands_together(machine_of: MachineOf) -> None:
    """Nine items beside the frame that forked are ten; one more is too deep, also a call in a strand."""
    drained(machine := machine_of(EACH, [["x"] * 9]))
    assert len(machine.waiting) == 9
    fault = machine_of(EACH, [["x"] * 10]).resume()
    assert isinstance(fault, Fault)
    assert (fault.kind, [row[0] for row in fault.backtrace]) == ("too-deep", ["main"])
    machine = machine_of(PLAIN, [["x"] * 9])
    drained(machine)
    machine = moved(machine)
    for seq in range(1, 9):
        assert isinstance(machine.resume("calls", seq), Waiting)
    deep = machine.resume("calls", 9)
    assert isinstance(deep, Fault)
    assert deep.kind == "too-deep"


@pytest.mark.usefixtures("few_calls")
def test_what_has_ended_makes_room(machine_of: MachineOf) -> None:
    """A strand that ended, by a value or a fault, is not counted any more."""
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


def test_fuel_is_for_all_strands_together(machine_of: MachineOf) -> None:
    """A fork uses its ticks at once; cut anywhere, the run uses as many and does the same."""
    whole = machine_of(NESTED, [[[1, 2], [3]]])
    drained(whole)
    assert whole.ticks == 1 + 2 + 3
    machine = machine_of(NESTED, [[[1, 2], [3]]], fuel=0)
    outcomes = []
    while machine.is_ready:
        machine.refuel(1)
        outcomes.append(machine.resume())
        machine = moved(machine)
    assert [outcome.seq for outcome in outcomes if isinstance(outcome, Effect)] == [1, 2, 3]
    assert sum(isinstance(outcome, OutOfFuel) for outcome in outcomes) > 2
    assert machine.ticks == whole.ticks


# --- displays ---------------------------------------------------------------------------------


def test_frames_are_those_of_the_strand_that_asked_last(machine_of: MachineOf) -> None:
    """With the frames it was forked from; `strands` has all, each with its own."""
    machine = machine_of(NESTED, [[[1, 2], [3]]])
    drained(machine)
    for _ in range(2):
        assert [(view.function, view.state) for view in machine.frames()] == [
            ("main", "start"),
            ("row", "start"),
            ("cell", "ask"),
        ]
        assert machine.frames()[-1].slots["n"] == 3
        machine = moved(machine)
    machine.resume({}, 3)
    assert machine.frames()[-1].slots["n"] == 2
    functions = [[view.function for view in machine.frames(most)] for most in (1, 2, 3, 9)]
    assert functions == [["cell"], ["row", "cell"], *[["main", "row", "cell"]] * 2]
    waiting = [(view.items, view.effect.seq) for view in machine.strands() if view.effect is not None]
    assert waiting == [((0, 0), 1), ((0, 1), 2)]
    assert [[frame.function for frame in view.frames] for view in machine.strands()][:2] == [
        ["main"],
        ["row"],
    ]


def test_notes_of_all_strands_come_in_the_order_they_were_made(machine_of: MachineOf) -> None:
    """As one stream."""
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
    drained(machine)
    machine.resume({}, 2)
    machine.resume({}, 1)
    assert [fields["cycle"] for _, fields in machine.take_notes()] == [1, 2, 20, 10]


# --- what is refused --------------------------------------------------------------------------

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
    """Two forks, one inside the other, of the outer a strand has ended and one has failed."""
    machine = machine_of(BROKEN)
    drained(machine)
    return machine


def test_what_the_mutations_begin_with_is_sound(stopped: Machine) -> None:
    """So that what is refused below is refused for its change."""
    snapshot = moved(stopped).snapshot()
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
def test_strands_that_cannot_be_are_refused(stopped: Machine, path: list[Any], change: Any) -> None:
    """Each part must fit the others."""
    snapshot: Any = deepcopy(stopped.snapshot())
    where = snapshot
    for key in path[:-1]:
        where = where[key]
    where[path[-1]] = change
    with pytest.raises(SnapshotError):
        Machine.restore(stopped.image, snapshot)


@pytest.mark.parametrize("field", ["strands", "forks", "ready"])
def test_a_missing_part_is_refused(stopped: Machine, field: str) -> None:
    """The three fields go together."""
    snapshot = stopped.snapshot()
    del snapshot[field]
    if field == "strands":
        # Then it is one strand, which stands at an exit that it has not come to yet.
        assert isinstance(Machine.restore(stopped.image, snapshot).resume(), Effect)
        return
    with pytest.raises(SnapshotError):
        Machine.restore(stopped.image, snapshot)


@given(data=st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_forged_strands_are_refused_or_run(stopped: Machine, data: st.DataObject) -> None:
    """Parts replaced by others of the snapshot, removed, doubled: SnapshotError, or it runs to an outcome."""
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
    given: tuple[Any, ...] = ()
    for _ in range(200):
        outcome = machine.resume(*given)
        if isinstance(outcome, Done | Fault | OutOfFuel):
            return
        given = () if machine.is_ready else ({}, next(iter(machine.waiting)))
    raise AssertionError("it neither ends nor uses fuel")
