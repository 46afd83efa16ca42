"""Profiles: division, measurement and output of the time of a run; execution tiers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from in_process import run_llc

from llc.ir.text import parse_program
from llc.runtime.execution import profiler, tier_choice
from llc.runtime.execution.profiler import Profile, of_events
from llc.runtime.inspection import profile_report
from llc.runtime.journal import journal, reader
from llc.runtime.journal.events import Event, StateEnter
from llc.vm.code.emit import emit
from llc.vm.tiered import Machine

Llc = Callable[..., subprocess.CompletedProcess[str]]

NAPS = """
name: naps
initial: long
states:
  long: {action: "sleep 0.12", next: short}
  short: {action: "sleep 0.03; exit 1", on_success: done, on_failure: long}
  done: {terminal: true}
max_iterations: 2
backoff: 0.05
"""
NAP = """
name: NAME
initial: doze
states:
  doze: {action: "sleep 0.08", next: rest}
  rest: {action: "sleep 0.02", next: done}
  done: {terminal: true}
"""
OUTER = """
name: outer
initial: first
states:
  first: {action: "sleep 0.02", next: inner}
  inner: {call: "parts.sexp#one", args: [], next: last}
  last: {action: "sleep 0.02", next: done}
  done: {terminal: true}
"""
PARTS = """
(define (one) (run-loop "one"))
"""
BOTH = """
(parallel-map (lambda (is-first) (if is-first (run-loop "one") (run-loop "two"))) (list true false))
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    loops = tmp_path / ".loops"
    loops.mkdir()
    texts = {"naps.yaml": NAPS, "outer.yaml": OUTER, "parts.sexp": PARTS, "both.sexp": BOTH}
    texts |= {f"{name}.yaml": NAP.replace("NAME", name) for name in ("one", "two")}
    for name, text in texts.items():
        (loops / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("NO_COLOR", "FORCE_COLOR", "LLC_TIER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def llc(project: Path, monkeypatch: pytest.MonkeyPatch) -> Llc:
    """Run llc in the project, with files as its streams."""

    return run_llc


def shares(told: dict[str, Any]) -> float:
    """All that the time was divided into."""
    return sum(cost["share_ms"] for cost in (*told["rows"], *told["own"].values()))


def counts(told: dict[str, Any]) -> dict[tuple[str, ...], int]:
    return {(*row["states"], row["effect"]): row["count"] for row in told["rows"]}


# --- runs -------------------------------------------------------------------------------------


def test_a_measured_run_tells_its_states_and_effects_and_what_llc_did(llc: Llc) -> None:
    """Each is there as often as it was performed, the longest first, and all of it is the time."""
    done = llc("run", "naps", "--profile", "--json", "-q")
    told = json.loads(done.stdout)["profile"]
    assert done.returncode == 3
    assert counts(told) == {("long", "shell"): 2, ("short", "shell"): 2, ("short", "sleep"): 1}
    assert next(iter(counts(told))) == ("long", "shell")
    assert set(told["own"]) == {"machine", "journal", "other"}
    assert shares(told) == pytest.approx(told["time_ms"], abs=0.1)
    assert sum(told["parts"].values()) == pytest.approx(told["time_ms"], abs=0.1)
    assert re.search(r"^llc: journal +- +\d+", done.stderr, re.MULTILINE)


def test_the_journal_of_any_run_tells_the_same_rows(llc: Llc) -> None:
    """Nothing needs to be known when the run is started."""
    measured = json.loads(llc("run", "naps", "--profile", "--json", "-q").stdout)["profile"]
    read = json.loads(llc("profile", "naps", "--json").stdout)
    assert counts(read) == counts(measured)
    assert set(read["own"]) == {"llc"}
    assert shares(read) == pytest.approx(read["time_ms"], abs=0.1)


def test_a_loop_within_stands_behind_the_state_that_runs_it(llc: Llc) -> None:
    """And what comes after it stands by itself again, measured or read."""
    measured = json.loads(llc("run", "outer", "--profile", "--json", "-q").stdout)["profile"]
    read = json.loads(llc("profile", "outer", "--json").stdout)
    wanted = {("inner", "one/doze", "shell"), ("inner", "one/rest", "shell")}
    wanted |= {("first", "shell"), ("last", "shell")}
    for told in (measured, read):
        assert {row for row in counts(told) if row[-1] == "shell"} == wanted


def test_what_goes_on_side_by_side_shares_the_time(llc: Llc) -> None:
    """Loops beside one another do not stand within one another; each has all it took as its total."""
    measured = json.loads(llc("run", "both", "--profile", "--json", "-q").stdout)["profile"]
    read = json.loads(llc("profile", "both", "--json").stdout)
    for told in (measured, read):
        rows = [row for row in told["rows"] if row["effect"] == "shell"]
        assert {tuple(row["states"]) for row in rows} == {
            (f"{loop}/{state}",) for loop in ("one", "two") for state in ("doze", "rest")
        }
        assert sum(row["total_ms"] for row in rows) > sum(row["share_ms"] for row in rows)
        assert shares(told) == pytest.approx(told["time_ms"], abs=0.1)
    assert "SHARE divides the time" in llc("profile", "both").stdout


def test_without_the_options_nothing_is_measured(project: Path) -> None:
    """A run that was not asked to does not even load what measures."""
    code = (
        "import sys; from llc.runtime.cli.entry import main; main();"
        "print([name for name in sys.modules"
        " if 'profil' in name or name == 'llc.runtime.execution.tier_choice'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "one", "-q"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


# --- how time is divided ----------------------------------------------------------------------


def told_of(folder: Path, *events: tuple[int, dict[str, Any]]) -> Profile:
    """The profile of a journal with these events, each at its millisecond."""
    path = folder / "x.events.jsonl"
    stamps = [f"2024-01-15T10:{at // 60000:02}:{at % 60000 / 1000:06.3f}Z" for at, _ in events]
    path.write_bytes(
        b"".join(journal.seal({**event, "ts": ts}) for ts, (_, event) in zip(stamps, events, strict=True))
    )
    return of_events("x", reader.read(str(path)))


def start(seq: int, state: str = "a") -> dict[str, Any]:
    return {"event": "action_start", "seq": seq, "kind": "shell", "action": "x", "args": {}, "state": state}


def end(seq: int, **result: Any) -> dict[str, Any]:
    return {"event": "action_complete", "seq": seq, "kind": "shell", "result": result}


BEGIN = (0, {"event": "run_start", "program": "x"})


def test_the_time_between_a_cut_and_going_on_is_nobodys(tmp_path: Path) -> None:
    """What was cut off counts until then, and again when it is performed again."""
    profile = told_of(
        tmp_path,
        BEGIN,
        (100, start(1)),
        (300, {"event": "process", "seq": 1}),
        (50_000, {"event": "run_resume"}),
        (50_100, start(1)),
        (51_000, end(1)),
    )
    (cost,) = profile.costs.values()
    assert (cost.count, round(cost.total, 3)) == (2, 1.1)
    assert round(profile.time, 3) == 1.3


def test_the_time_for_which_the_machine_slept_is_nobodys(tmp_path: Path) -> None:
    """The run says for how long it was active, and an action what it took."""
    profile = told_of(
        tmp_path,
        BEGIN,
        (100, start(1)),
        (600_000, end(1, duration_ms=2900, elapsed_ms=3000)),
        (600_100, {"event": "run_end"}),
    )
    (cost,) = profile.costs.values()
    assert (round(cost.total, 3), round(profile.time, 3)) == (2.9, 3.1)


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000)), max_size=8), st.integers(0, 3000))
@settings(max_examples=60)
def test_shares_add_up_however_effects_overlap(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]], rest: int
) -> None:
    """The shares are the time of the run; no effect has more than it took; llc has what no effect covers."""
    events = [BEGIN]
    for seq, (one, other) in enumerate(spans, 1):
        events.append((min(one, other), start(seq, f"s{seq}")))
        events.append((max(one, other), end(seq)))
    last = max(at for at, _ in events) + rest
    events.append((last, {"event": "run_end"}))
    order = {"run_start": 0, "action_start": 1, "action_complete": 2, "run_end": 3}
    events.sort(key=lambda item: (item[0], order[item[1]["event"]]))
    profile = told_of(tmp_path_factory.mktemp("law"), *events)
    covered = {ms for one, other in spans for ms in range(min(one, other), max(one, other))}
    own = sum(cost.share for cost in profile.own.values())
    assert profile.time == pytest.approx(last / 1000, abs=1e-4)
    assert own == pytest.approx((last - len(covered)) / 1000, abs=1e-4)
    assert all(cost.share <= cost.total + 1e-4 for cost in profile.costs.values())


# --- files for viewers ------------------------------------------------------------------------


def test_a_flame_graph_for_speedscope_has_a_frame_for_each_place(llc: Llc, project: Path) -> None:
    """Stacks of frames that are there, whose weights come to the end of the profile."""
    llc("run", "outer", "-q", "--flame", "outer.json")
    file = json.loads((project / "outer.json").read_text())
    (found,) = file["profiles"]
    names = [frame["name"] for frame in file["shared"]["frames"]]
    found_stacks = [[names[index] for index in sample] for sample in found["samples"]]
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert ["outer", "inner", "one/doze", "shell"] in found_stacks
    assert ["outer", "llc", "machine"] in found_stacks
    assert (found["type"], found["unit"]) == ("sampled", "milliseconds")
    assert len(found["samples"]) == len(found["weights"])
    assert sum(found["weights"]) == pytest.approx(found["endValue"], abs=0.01)


def test_collapsed_stacks_are_lines_that_viewers_split(llc: Llc, project: Path) -> None:
    """A stack and a whole number; no name breaks a line or a stack."""
    llc("run", "naps", "-q")
    assert llc("profile", "naps", "--flame", "naps.txt").returncode == 0
    lines = (project / "naps.txt").read_text().splitlines()
    assert all(re.fullmatch(r"naps(;[^; ]+)+ \d+", line) for line in lines)
    profile = Profile("x", "odd;name\nof it")
    profile.states.note(StateEnter(state="a;b", iteration=1))
    profile.advance(0.0, "llc")
    profile.begin(1, (profile.states.of_effect(None), "shell"), 0.0)
    profile.advance(1.0, "llc")
    assert profile_report.collapsed(profile) == "odd,name of it;a,b;shell 1000000\n"


def test_a_flame_graph_that_cannot_be_written_is_an_error(llc: Llc) -> None:
    """A folder that is not there before anything is run; else the run is done and on record all the same."""
    for words in (["run", "one"], ["resume", "one"], ["profile", "one"]):
        done = llc(*words, "--flame", "none/x.json")
        assert (done.returncode, "there is no directory `none`" in done.stderr) == (2, True)
    done = llc("run", "one", "-q", "--flame", "/proc/x.json")
    assert (done.returncode, "error[cannot-write]" in done.stderr) == (1, True)
    assert llc("profile", "one").returncode == 0


def test_going_on_measures_what_is_driven(llc: Llc) -> None:
    """A fork takes the options of `resume`; the journal has all of the run."""
    llc("run", "naps", "-q")
    done = llc("fork", "naps", "--at", "2", "--profile", "--json", "-q")
    told = json.loads(done.stdout)
    assert counts(told["profile"])[("long", "shell")] == 1
    read = json.loads(llc("profile", told["run"], "--json").stdout)
    assert counts(read)[("long", "shell")] == 2


def test_what_was_cut_off_is_performed_in_its_state(llc: Llc, project: Path) -> None:
    """A resumed run stands where it stood, also in a loop within, before anything is noted."""
    (project / ".loops" / "one.yaml").write_text(
        NAP.replace("NAME", "one").replace("sleep 0.08", "test -e go || kill -INT $PPID; sleep 0.1")
    )
    assert llc("run", "outer", "-q").returncode == 130
    (project / "go").touch()
    told = json.loads(llc("resume", "outer", "--profile", "--json", "-q").stdout)["profile"]
    assert counts(told)[("inner", "one/doze", "shell")] == 1
    assert ("first", "shell") not in counts(told)
    read = json.loads(llc("profile", "outer", "--json").stdout)
    assert counts(read)[("inner", "one/doze", "shell")] == 2


def test_meters_wrap_and_do_not_change(project: Path) -> None:
    """What is not timed is the real thing's own."""
    meter = profiler.Meter("x", "x")
    written = journal.Journal.create("x.events.jsonl", lambda: "2024-01-15T10:30:00.000Z")
    meter.journal(written).write("log", {"message": "hello"})
    assert meter.journal(written).size == written.size > 0
    written.close()


# --- tiers ------------------------------------------------------------------------------------


def events_of(folder: Path, run: str) -> list[dict[str, Any]]:
    """A run's events without what differs from run to run."""
    (path,) = folder.glob(f".loops/.history/{run}/*.events.jsonl")
    found = []
    for read in reader.read(str(path)):
        assert isinstance(read, Event)
        event = dict(read.wire)
        for name in ("ts", "run", "pid", "start_time", "duration_ms"):
            event.pop(name, None)
        event.get("result", {}).pop("duration_ms", None)
        event.get("result", {}).pop("elapsed_ms", None)
        found.append(event)
    return found


def test_tiers_leave_the_same_record(llc: Llc, project: Path) -> None:
    """Nothing but time tells them apart, in the journal neither."""
    told = [
        events_of(project, json.loads(llc("run", "one", "--json", "-q", "--tier", tier).stdout)["run"])
        for tier in ("interpreter", "direct", "auto")
    ]
    assert told[0] == told[1] == told[2]
    assert "tier" not in json.dumps(told)


@pytest.mark.parametrize("verb", ["run", "resume"])
def test_an_unknown_tier_is_refused(llc: Llc, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """By option and by variable, with the nearest one named."""
    done = llc(verb, "one", "--tier", "dirct")
    assert done.returncode == 2
    assert "--tier is interpreter, direct or auto, not `dirct`" in done.stderr
    assert "did you mean `direct`" in done.stderr
    monkeypatch.setenv("LLC_TIER", "fast")
    assert "LLC_TIER is" in llc(verb, "one").stderr


@pytest.mark.parametrize("tier", ["interpreter", "direct"])
def test_forms_are_evaluated_in_any_tier(project: Path, tier: str) -> None:
    """`llc repl` takes the option, and refuses what is no tier."""
    words = [sys.executable, "-m", "llc", "repl", "--tier"]
    done = subprocess.run([*words, tier], input="(+ 1 2)\n", capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "3\n")
    assert subprocess.run([*words, "x"], input="", capture_output=True).returncode == 2


def test_verbose_says_which_tier_the_program_ran_in(
    llc: Llc, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And why it was not the direct one."""
    (project / "spin.sexp").write_text("(define (spin i) (if (= i 0) 0 (spin (- i 1))))\n(spin 5000)\n")
    assert "in the direct tier" in llc("run", "./spin.sexp", "-v").stderr
    assert "translation starts after 500 ticks" in llc("run", "one", "-v").stderr
    assert "in the direct tier" in llc("run", "one", "-v", "--tier", "direct").stderr
    monkeypatch.setenv("LLC_TIER", "interpreter")
    assert "in the interpreter" in (shown := llc("run", "./spin.sexp", "-v").stderr)
    assert "as requested" in shown
    assert "tier" not in llc("run", "one").stderr


def test_verbose_says_what_could_not_be_translated(llc: Llc, project: Path) -> None:
    """A function with too many states is named."""
    states = "".join(
        f"  s{n}: {{action: 'true', on_success: done, on_failure: s{n + 1}}}\n" for n in range(900)
    )
    text = (
        f"name: large\ninitial: s0\nstates:\n{states}  s900: {{terminal: true}}\n  done: {{terminal: true}}\n"
    )
    (project / ".loops" / "large.yaml").write_text(text)
    done = llc("run", "large", "-v", "--tier", "direct")
    assert re.search(r"cannot be translated: `\w+` has [\d,]+ states, and 3,000 are the most", done.stderr)


def test_what_python_refused_is_told() -> None:
    """The function is named and Python's words are given."""
    nested = f"{'upper(' * 150}x{')' * 150}"
    text = f"program deep entry main\nfunction main(x)\n state start\n  return {nested}\n"
    machine = Machine(emit(parse_program(text, "deep.ir")), ["a"], tier="direct")
    assert repr(machine.resume()) == "Done('A')"
    assert re.match(
        r"the program ran in the interpreter \(1 ticks\): it cannot be translated: `main`: \w+: .*nested",
        tier_choice.describe_tier(machine, "direct"),
    )
