"""Profiles: attribution, measurement and output of the time of a run; execution tiers."""

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

SLEEPING_LOOP = """
name: sleeper
initial: long
states:
  long: {action: "sleep 0.12", next: short}
  short: {action: "sleep 0.03; exit 1", on_success: done, on_failure: long}
  done: {terminal: true}
max_iterations: 2
backoff: 0.05
"""
SHORT_LOOP = """
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
    texts = {"sleeper.yaml": SLEEPING_LOOP, "outer.yaml": OUTER, "parts.sexp": PARTS, "both.sexp": BOTH}
    texts |= {f"{name}.yaml": SHORT_LOOP.replace("NAME", name) for name in ("one", "two")}
    for name, text in texts.items():
        (loops / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("NO_COLOR", "FORCE_COLOR", "LLC_TIER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def llc(project: Path, monkeypatch: pytest.MonkeyPatch) -> Llc:
    """Run llc in the project."""

    return run_llc


def total_share(data: dict[str, Any]) -> float:
    """The sum of all shares of a profile."""
    return sum(cost["share_ms"] for cost in (*data["rows"], *data["own"].values()))


def counts(data: dict[str, Any]) -> dict[tuple[str, ...], int]:
    return {(*row["states"], row["effect"]): row["count"] for row in data["rows"]}


# --- runs -------------------------------------------------------------------------------------


def test_a_measured_run_has_states_effects_and_own_time(llc: Llc) -> None:
    """Rows count each effect, the longest first; rows and llc's own time add up to the time of the run."""
    done = llc("run", "sleeper", "--profile", "--json", "-q")
    profile = json.loads(done.stdout)["profile"]
    assert done.returncode == 3
    assert counts(profile) == {("long", "shell"): 2, ("short", "shell"): 2, ("short", "sleep"): 1}
    assert next(iter(counts(profile))) == ("long", "shell")
    assert set(profile["own"]) == {"machine", "journal", "other"}
    assert total_share(profile) == pytest.approx(profile["time_ms"], abs=0.1)
    assert sum(profile["parts"].values()) == pytest.approx(profile["time_ms"], abs=0.1)
    assert re.search(r"^llc: journal +- +\d+", done.stderr, re.MULTILINE)


def test_a_profile_of_the_journal_has_the_same_rows(llc: Llc) -> None:
    """The run needs no option for this."""
    measured = json.loads(llc("run", "sleeper", "--profile", "--json", "-q").stdout)["profile"]
    read = json.loads(llc("profile", "sleeper", "--json").stdout)
    assert counts(read) == counts(measured)
    assert set(read["own"]) == {"llc"}
    assert total_share(read) == pytest.approx(read["time_ms"], abs=0.1)


def test_rows_of_an_inner_loop_follow_the_calling_state(llc: Llc) -> None:
    """States after the inner loop have no prefix, whether measured or read from the journal."""
    measured = json.loads(llc("run", "outer", "--profile", "--json", "-q").stdout)["profile"]
    read = json.loads(llc("profile", "outer", "--json").stdout)
    wanted = {("inner", "one/doze", "shell"), ("inner", "one/rest", "shell")}
    wanted |= {("first", "shell"), ("last", "shell")}
    for profile in (measured, read):
        assert {row for row in counts(profile) if row[-1] == "shell"} == wanted


def test_concurrent_loops_share_the_time(llc: Llc) -> None:
    """Concurrent loops are not nested in each other; each row has its full time as total."""
    measured = json.loads(llc("run", "both", "--profile", "--json", "-q").stdout)["profile"]
    read = json.loads(llc("profile", "both", "--json").stdout)
    for profile in (measured, read):
        rows = [row for row in profile["rows"] if row["effect"] == "shell"]
        assert {tuple(row["states"]) for row in rows} == {
            (f"{loop}/{state}",) for loop in ("one", "two") for state in ("doze", "rest")
        }
        assert sum(row["total_ms"] for row in rows) > sum(row["share_ms"] for row in rows)
        assert total_share(profile) == pytest.approx(profile["time_ms"], abs=0.1)
    assert "SHARE divides the time" in llc("profile", "both").stdout


def test_without_the_options_nothing_is_measured(project: Path) -> None:
    """A run without the options does not import the profiler."""
    code = (
        "import sys; from llc.runtime.cli.entry import main; main();"
        "print([name for name in sys.modules"
        " if 'profil' in name or name == 'llc.runtime.execution.tier_choice'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "one", "-q"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


# --- attribution of time ---------------------------------------------------------------------


def profile_of(folder: Path, *events: tuple[int, dict[str, Any]]) -> Profile:
    """The profile of a journal with these events, each with its time in milliseconds."""
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


def test_the_time_between_interruption_and_resume_is_not_counted(tmp_path: Path) -> None:
    """An interrupted effect counts until the interruption, and again when it is repeated."""
    profile = profile_of(
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


def test_the_time_of_a_suspended_computer_is_not_counted(tmp_path: Path) -> None:
    """The recorded active time of the run and the duration of the action are used."""
    profile = profile_of(
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
    """Shares add up to the time of the run, no share exceeds its total, and llc has the time without
    effects.
    """
    events = [BEGIN]
    for seq, (one, other) in enumerate(spans, 1):
        events.append((min(one, other), start(seq, f"s{seq}")))
        events.append((max(one, other), end(seq)))
    last = max(at for at, _ in events) + rest
    events.append((last, {"event": "run_end"}))
    order = {"run_start": 0, "action_start": 1, "action_complete": 2, "run_end": 3}
    events.sort(key=lambda item: (item[0], order[item[1]["event"]]))
    profile = profile_of(tmp_path_factory.mktemp("law"), *events)
    covered = {ms for one, other in spans for ms in range(min(one, other), max(one, other))}
    own = sum(cost.share for cost in profile.own.values())
    assert profile.time == pytest.approx(last / 1000, abs=1e-4)
    assert own == pytest.approx((last - len(covered)) / 1000, abs=1e-4)
    assert all(cost.share <= cost.total + 1e-4 for cost in profile.costs.values())


# --- files for viewers ------------------------------------------------------------------------


def test_a_speedscope_file_has_a_frame_for_each_state(llc: Llc, project: Path) -> None:
    """Stacks use existing frames, and their weights add up to the end of the profile."""
    llc("run", "outer", "-q", "--flame", "outer.json")
    file = json.loads((project / "outer.json").read_text())
    (profile,) = file["profiles"]
    names = [frame["name"] for frame in file["shared"]["frames"]]
    stacks = [[names[index] for index in sample] for sample in profile["samples"]]
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert ["outer", "inner", "one/doze", "shell"] in stacks
    assert ["outer", "llc", "machine"] in stacks
    assert (profile["type"], profile["unit"]) == ("sampled", "milliseconds")
    assert len(profile["samples"]) == len(profile["weights"])
    assert sum(profile["weights"]) == pytest.approx(profile["endValue"], abs=0.01)


def test_collapsed_stacks_have_one_line_for_each_stack(llc: Llc, project: Path) -> None:
    """A line is a stack and an integer; separators in names are replaced."""
    llc("run", "sleeper", "-q")
    assert llc("profile", "sleeper", "--flame", "sleeper.txt").returncode == 0
    lines = (project / "sleeper.txt").read_text().splitlines()
    assert all(re.fullmatch(r"sleeper(;[^; ]+)+ \d+", line) for line in lines)
    profile = Profile("x", "odd;name\nof it")
    profile.states.note(StateEnter(state="a;b", iteration=1))
    profile.advance(0.0, "llc")
    profile.begin(1, (profile.states.of_effect(None), "shell"), 0.0)
    profile.advance(1.0, "llc")
    assert profile_report.collapsed(profile) == "odd,name of it;a,b;shell 1000000\n"


def test_a_flame_graph_that_cannot_be_written_is_an_error(llc: Llc) -> None:
    """A missing folder is reported before the run; otherwise the run completes and is recorded."""
    for words in (["run", "one"], ["resume", "one"], ["profile", "one"]):
        done = llc(*words, "--flame", "none/x.json")
        assert (done.returncode, "there is no directory `none`" in done.stderr) == (2, True)
    done = llc("run", "one", "-q", "--flame", "/proc/x.json")
    assert (done.returncode, "error[cannot-write]" in done.stderr) == (1, True)
    assert llc("profile", "one").returncode == 0


def test_a_fork_measures_its_own_effects(llc: Llc) -> None:
    """A fork accepts the options of `resume`; the profile of the journal includes inherited effects."""
    llc("run", "sleeper", "-q")
    done = llc("fork", "sleeper", "--at", "2", "--profile", "--json", "-q")
    profile = json.loads(done.stdout)
    assert counts(profile["profile"])[("long", "shell")] == 1
    read = json.loads(llc("profile", profile["run"], "--json").stdout)
    assert counts(read)[("long", "shell")] == 2


def test_a_repeated_effect_is_counted_in_its_state(llc: Llc, project: Path) -> None:
    """A resumed run attributes its first effect to the state of the interruption, also in an inner loop."""
    (project / ".loops" / "one.yaml").write_text(
        SHORT_LOOP.replace("NAME", "one").replace("sleep 0.08", "test -e go || kill -INT $PPID; sleep 0.1")
    )
    assert llc("run", "outer", "-q").returncode == 130
    (project / "go").touch()
    profile = json.loads(llc("resume", "outer", "--profile", "--json", "-q").stdout)["profile"]
    assert counts(profile)[("inner", "one/doze", "shell")] == 1
    assert ("first", "shell") not in counts(profile)
    read = json.loads(llc("profile", "outer", "--json").stdout)
    assert counts(read)[("inner", "one/doze", "shell")] == 2


def test_a_meter_has_the_attributes_of_the_journal(project: Path) -> None:
    meter = profiler.Meter("x", "x")
    written = journal.Journal.create("x.events.jsonl", lambda: "2024-01-15T10:30:00.000Z")
    meter.journal(written).write("log", {"message": "hello"})
    assert meter.journal(written).size == written.size > 0
    written.close()


# --- tiers ------------------------------------------------------------------------------------


def events_of(folder: Path, run: str) -> list[dict[str, Any]]:
    """A run's events, without fields that differ from run to run."""
    (path,) = folder.glob(f".loops/.history/{run}/*.events.jsonl")
    events = []
    for read in reader.read(str(path)):
        assert isinstance(read, Event)
        event = dict(read.wire)
        for name in ("ts", "run", "pid", "start_time", "duration_ms"):
            event.pop(name, None)
        event.get("result", {}).pop("duration_ms", None)
        event.get("result", {}).pop("elapsed_ms", None)
        events.append(event)
    return events


def test_all_tiers_write_the_same_journal(llc: Llc, project: Path) -> None:
    profile = [
        events_of(project, json.loads(llc("run", "one", "--json", "-q", "--tier", tier).stdout)["run"])
        for tier in ("interpreter", "direct", "auto")
    ]
    assert profile[0] == profile[1] == profile[2]
    assert "tier" not in json.dumps(profile)


@pytest.mark.parametrize("subcommand", ["run", "resume"])
def test_an_unknown_tier_is_refused(llc: Llc, monkeypatch: pytest.MonkeyPatch, subcommand: str) -> None:
    """The option and the variable are checked, with a suggestion."""
    done = llc(subcommand, "one", "--tier", "dirct")
    assert done.returncode == 2
    assert "--tier is interpreter, direct or auto, not `dirct`" in done.stderr
    assert "did you mean `direct`" in done.stderr
    monkeypatch.setenv("LLC_TIER", "fast")
    assert "LLC_TIER is" in llc(subcommand, "one").stderr


@pytest.mark.parametrize("tier", ["interpreter", "direct"])
def test_repl_accepts_any_tier(project: Path, tier: str) -> None:
    """An unknown tier is refused."""
    words = [sys.executable, "-m", "llc", "repl", "--tier"]
    done = subprocess.run([*words, tier], input="(+ 1 2)\n", capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "3\n")
    assert subprocess.run([*words, "x"], input="", capture_output=True).returncode == 2


def test_verbose_reports_the_tier(llc: Llc, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the reason if it was not the compiled tier."""
    (project / "spin.sexp").write_text("(define (spin i) (if (= i 0) 0 (spin (- i 1))))\n(spin 5000)\n")
    assert "in the direct tier" in llc("run", "./spin.sexp", "-v").stderr
    assert "translation starts after 500 ticks" in llc("run", "one", "-v").stderr
    assert "in the direct tier" in llc("run", "one", "-v", "--tier", "direct").stderr
    monkeypatch.setenv("LLC_TIER", "interpreter")
    assert "in the interpreter" in (shown := llc("run", "./spin.sexp", "-v").stderr)
    assert "as requested" in shown
    assert "tier" not in llc("run", "one").stderr


def test_verbose_names_a_function_that_is_too_large_to_translate(llc: Llc, project: Path) -> None:
    states = "".join(
        f"  s{n}: {{action: 'true', on_success: done, on_failure: s{n + 1}}}\n" for n in range(900)
    )
    text = (
        f"name: large\ninitial: s0\nstates:\n{states}  s900: {{terminal: true}}\n  done: {{terminal: true}}\n"
    )
    (project / ".loops" / "large.yaml").write_text(text)
    done = llc("run", "large", "-v", "--tier", "direct")
    assert re.search(r"cannot be translated: `\w+` has [\d,]+ states; the limit is 3,000", done.stderr)


def test_an_error_of_the_python_compiler_is_reported() -> None:
    """The message has the function and Python's error."""
    nested = f"{'upper(' * 150}x{')' * 150}"
    text = f"program deep entry main\nfunction main(x)\n state start\n  return {nested}\n"
    machine = Machine(emit(parse_program(text, "deep.ir")), ["a"], tier="direct")
    assert repr(machine.resume()) == "Done('A')"
    assert re.match(
        r"the program ran in the interpreter \(1 ticks\): it cannot be translated: `main`: \w+: .*nested",
        tier_choice.describe_tier(machine, "direct"),
    )
