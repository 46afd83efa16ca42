"""`llc trace`: every point of a run, on a terminal and as JSON."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest
import terminals
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from terminals import plain

from llc.runtime.journal.reader import EventFile
from llc.runtime.launch import run as launch_run
from llc.runtime.project import options
from llc.runtime.recordings import find
from llc.runtime.recordings import timeline as timelines
from llc.runtime.recordings.timeline import Timeline

Llc = Callable[..., subprocess.CompletedProcess[str]]

LOOP = """name: fix
initial: check
states:
  check:
    action: "lint src"
    capture: found
    on_success: done
    on_failure: mend
  mend:
    action: "mend ${captured.found.output}"
    next: check
  done: {terminal: true}
max_iterations: 50
"""
WORLD = """
- state: check
  results: [{output: "first\\nsecond\\n", exit_code: 1}, {output: deep, exit_code: 1}, {output: ok}]
- {state: mend, output: "mended \\e[31mred\\n"}
"""
CONCURRENT = (
    '(parallel-map (lambda (n) (begin (sleep n) (log-message "slept" n) (sleep 0) n)) (list 3 1 2))\n'
)


@pytest.fixture
def project(project_dir: Path) -> Path:
    (project_dir / ".loops" / "fix.yaml").write_text(LOOP)
    (project_dir / "world.yaml").write_text(WORLD)
    (project_dir / "concurrent.sexp").write_text(CONCURRENT)
    return project_dir


def run(target: str = "fix") -> None:
    launch_run.outcome(options.Values(target, quiet=True, script="world.yaml"))


def timeline_of(target: str) -> Timeline:
    files = find.find_run(target)
    return Timeline(files.recording(), files.load_image())


# --- points -----------------------------------------------------------------------------------


def test_each_point_is_a_line_of_json(project: Path, llc: Llc) -> None:
    """A point has state, effect with arguments and result, slots and source line; text without `--json`."""
    run()
    done = llc("trace", "fix", "--json")
    points = [json.loads(line) for line in done.stdout.splitlines()]
    text = llc("trace", "fix").stdout
    assert text.startswith(points[0]["state"]) or f"point 0 of {len(points) - 1}" in text
    assert text.count(f" of {len(points) - 1} ") == len(points)
    assert [(point["state"], point["iteration"], point["line"]) for point in points] == [
        ("check", 1, 4),
        ("mend", 1, 9),
        ("check", 2, 4),
        ("mend", 2, 9),
        ("check", 3, 4),
        ("done", 3, 12),
    ]
    second = points[1]
    assert second["effect"]["args"]["command"] == "mend 'first\nsecond'"
    assert second["effect"]["result"]["output"] == "mended \x1b[31mred\n"
    assert [note["note"] for note in second["notes"]] == ["evaluate", "route", "state_enter"]
    assert second["frames"][0]["slots"]["captured.found"]["output"] == "first\nsecond\n"
    assert [point["failure"] for point in points] == [True, True, True, True, False, False]
    assert points[-1]["outcome"]["status"] == "success"


def test_one_point_is_shown_as_text_or_json(project: Path, llc: Llc) -> None:
    """A point is selected by the number of an effect, an iteration or a state's name."""
    run()
    for word in ("2", "i1", "mend", "check", "4", "i2"):
        point = json.loads(llc("trace", "fix", "--at", word, "--json").stdout)
        assert point["point"] == {"2": 1, "i1": 0, "mend": 1, "check": 0, "4": 3, "i2": 2}[word], word
    text = llc("trace", "fix", "--at", "2").stdout
    assert "point 1 of 5  effect 2  iteration 1  state mend" in text
    assert ">    9 |   mend:" in text
    assert "verdict `failure` in `check` (exit_code)" in text
    assert "\x1b" not in text
    done = llc("trace", "fix", "--at", "9")
    assert done.returncode == 2
    assert "it has 5 effects" in done.stderr


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(visits=st.lists(st.integers(0, 6), min_size=1, max_size=12), stride=st.sampled_from([1, 2, 64]))
@pytest.mark.parametrize("target", ["fix", "concurrent.sexp"])
def test_a_point_does_not_depend_on_earlier_points(
    project: Path, target: str, visits: list[int], stride: int
) -> None:
    """Forwards, backwards and from any snapshot, for loops and for concurrent calls."""
    if not list(project.glob(".loops/.history/*-*")):
        run(target)
    expected = [point.to_json() for point in timeline_of(Path(target).stem)]
    patch = pytest.MonkeyPatch()
    patch.setattr(timelines, "_STRIDE", stride)
    patch.setattr(timelines, "_MAX_SNAPSHOTS", 3)
    try:
        timeline = timeline_of(Path(target).stem)
        for visit in visits:
            number = min(visit, timeline.count - 1)
            assert timeline.at(number).to_json() == expected[number]
    finally:
        patch.undo()


def test_concurrent_calls_are_distinguished(project: Path) -> None:
    """A point has the next effect with its item, and the other pending effects."""
    run("concurrent.sexp")
    timeline = timeline_of("concurrent")
    first = timeline.at(0)
    assert first.asked is not None
    assert sorted([first.asked.seq, *(effect.seq for effect in first.waiting)]) == [1, 2, 3]
    assert {timeline.at(number).items for number in range(6)} == {(0,), (1,), (2,)}
    assert first.frames[-1].slots["n"] == {1: 3, 2: 1, 3: 2}[first.asked.seq]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8, 11, -1])
def test_an_interrupted_run_has_its_recorded_points(
    project: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The last point has a pending effect without result, or only the end is missing (-1)."""
    monkeypatch.setattr(timelines, "_STRIDE", 1)
    run()
    (journal,) = project.glob(".loops/.history/fix-*/*.jsonl")
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:count]))
    timeline = timeline_of("fix")
    points = list(timeline)
    assert len(points) == len(timeline.recording.answers) + 1
    assert points[-1].result is None
    assert points[-1].outcome is None


def test_an_endless_computation_after_the_last_event_is_not_shown(project: Path, llc: Llc) -> None:
    """The trace of a run that was killed while computing ends with its last event."""
    (project / "endless.sexp").write_text('(begin (sleep 0) (log-message "started") (loop () (recur)))\n')
    llc("run", "endless.sexp", "--quiet", "--fuel", "100000")
    assert llc("replay", "endless").stdout.endswith("the run is unfinished\n")
    points = [json.loads(line) for line in llc("trace", "endless", "--json").stdout.splitlines()]
    assert [note["note"] for point in points for note in point["notes"]] == ["log"]


def test_secrets_are_masked(project: Path, llc: Llc, monkeypatch: pytest.MonkeyPatch) -> None:
    """In effects, results and slots, as text and as JSON, and in the files of a fork."""
    (project / "login.yaml").write_text(
        "name: login\ninitial: a\nstates:\n"
        "  a: {action: 'echo got $DEPLOY_TOKEN', capture: out, next: b}\n"
        "  b: {action: 'echo ${captured.out.output}', next: done}\n"
        "  done: {terminal: true}\n"
    )
    monkeypatch.setenv("DEPLOY_TOKEN", "s3cret-value")
    llc("run", "login.yaml", "--quiet")
    llc("fork", "login", "--at", "2", "--quiet")
    for shown in (llc("trace", "login").stdout, llc("trace", "login", "--at", "2").stdout):
        assert "got ***" in shown
        assert "s3cret" not in shown
    for file in (project / ".loops").rglob("*"):
        assert not file.is_file() or b"s3cret" not in file.read_bytes(), file
    (project / "late.yaml").write_text(
        (project / "login.yaml").read_text().replace("DEPLOY_TOKEN", "PLAIN_WORD")
    )
    monkeypatch.setenv("PLAIN_WORD", "plain-value")
    llc("run", "late.yaml", "--quiet")
    (project / ".loops" / "config.yaml").write_text("secrets: [PLAIN_WORD]\n")
    assert llc("replay", "late.yaml").returncode == 0, "a value that is a secret only now makes no difference"
    monkeypatch.delenv("DEPLOY_TOKEN")
    assert llc("trace", "login", "--at", "2").returncode == 0
    assert llc("replay", "login").returncode == 0


# --- the terminal -----------------------------------------------------------------------------


class Screen:
    """The screen that `llc trace` draws on a pseudo-terminal."""

    def __init__(self, child: Any) -> None:
        self.child = child

    def expect(self, text: str) -> str:
        """Wait until a screen with this text is drawn; returns its rows after the text."""
        self.child.expect_exact(text)
        self.child.expect_exact("\x1b[J")
        return plain(self.child.before)

    def press(self, keys: str, text: str) -> str:
        self.child.send(keys)
        return self.expect(text)


@pytest.fixture
def screen(project: Path) -> Screen:
    run()
    child = terminals.spawn("trace", "fix")
    return Screen(child)


def test_stepping_forward_and_back(screen: Screen) -> None:
    """With n and p, the arrow keys, and G and 0 for the ends."""
    screen.expect("point 0 of 5")
    rest = screen.press("n", "point 1 of 5")
    assert "effect 2  iteration 1  state mend" in rest
    assert ">    9 |   mend:" in rest
    screen.press("\x1b[C", "point 2 of 5")
    screen.press("\x1b[D", "point 1 of 5")
    screen.press("p", "point 0 of 5")
    screen.press("p", "this is the first point")
    screen.press("G", "point 5 of 5")
    screen.press("n", "this is the last point")
    screen.press("0", "point 0 of 5")
    screen.child.send("q")
    assert terminals.exit_code(screen.child) == 0


def test_going_to_a_place_and_to_failures(screen: Screen) -> None:
    """g accepts an effect, an iteration or a state; f and F select the next and previous failure."""
    screen.expect("point 0 of 5")
    for word, point in (("4", 3), ("i2", 2), ("mend", 1)):
        screen.child.send("g")
        screen.child.expect_exact("go to (12, i3, state): ")
        screen.press(f"{word}\r", f"point {point} of 5")
    screen.child.send("g")
    screen.press("nowhere\r", "there is no effect, iteration or state `nowhere`")
    screen.press("f", "point 2 of 5")
    screen.press("f", "point 3 of 5")
    screen.press("f", "no failure after this point")
    screen.press("F", "point 2 of 5")


def test_searching(screen: Screen) -> None:
    """In commands and outputs after the cursor; an empty search repeats the last one; Escape cancels."""
    screen.expect("point 0 of 5")
    screen.child.send("/")
    screen.press("deep\r", "point 2 of 5")
    screen.child.send("/")
    screen.press("\r", "point 3 of 5")
    screen.child.send("/")
    screen.press("xyz\x7f\x7f\x7fno such\r", "`no such` does not occur after this point")
    screen.child.send("/")
    screen.press("abc\x1b", "point 3 of 5")
    rest = screen.press("?", "the next, previous failure")
    assert "quit" in rest


def test_escape_sequences_are_removed_and_the_terminal_is_restored(screen: Screen) -> None:
    """Ctrl-C restores the screen and the mode of the terminal."""
    screen.expect("point 0 of 5")
    screen.child.send("n")
    screen.child.expect_exact("mended red")
    screen.child.sendintr()
    screen.child.expect_exact("\x1b[?25h\x1b[?1049l")
    screen.child.expect(pexpect.EOF)
    screen.child.close()
    assert screen.child.exitstatus == 130


def test_a_page_longer_than_the_screen_is_scrolled(screen: Screen) -> None:
    """The size of the terminal may change at any time."""
    screen.expect("point 0 of 5")
    screen.child.setwinsize(10, 60)
    screen.expect("more lines")
    screen.press("j", "more lines")
    screen.press("\x1b[6~", "point 0 of 5")
    screen.child.setwinsize(60, 100)
    screen.expect("in main")


def test_positions_are_found_without_reading_events(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of the first reading of the journal has the event of each effect."""
    run()
    files = find.find_run("fix")
    recording, image = files.recording(), files.load_image()
    read: list[int] = []
    monkeypatch.setattr(EventFile, "at", lambda file, offset: read.append(offset))
    timeline = Timeline(recording, image)
    assert timeline.find_place("4") == 3
    assert timeline.find_place(str(timeline.count)) is None
    assert read == []
