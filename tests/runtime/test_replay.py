"""Replay of a run without a world: the same trace, or the first difference."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llc.frontend.compile import compile_text
from llc.runtime.journal import codec
from llc.runtime.journal.reader import EventFile
from llc.runtime.launch import run as launch_run
from llc.runtime.project import options
from llc.runtime.recordings import diff, diff_text, find, lockstep, replay_command
from llc.runtime.recordings.diff import Comparison
from llc.runtime.recordings.recording import EffectRequest, Note, Recording, StoredEvents
from llc.vm.code.emit import emit

Llc = Callable[..., subprocess.CompletedProcess[str]]

LOOP = """name: fix
initial: check
states:
  check:
    action: "echo check >> log; test -e fixed"
    capture: checked
    on_success: done
    on_failure: mend
  mend:
    action: "touch fixed; echo ${captured.checked.exit_code}"
    next: check
  done: {terminal: true}
max_iterations: 5
"""
FLOW = """(define (count n) (if (= n 0) "landed" (begin (log-message "at" n) (sleep 0) (count (- n 1)))))
(count 3)
"""


@pytest.fixture
def llc(llc: Llc, project_dir: Path) -> Llc:
    """Run llc in a project with a loop and a flow."""
    (project_dir / ".loops" / "fix.yaml").write_text(LOOP)
    (project_dir / ".loops" / "countdown.sexp").write_text(FLOW)
    return llc


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


def history(project: Path) -> Path:
    (folder,) = project.glob(".loops/.history/*-*")
    return folder


def test_a_finished_run_is_identical_and_nothing_is_performed(llc: Llc, tmp_path: Path) -> None:
    """The trace and the outcome are as recorded; the actions are not run again."""
    assert llc("run", "fix").returncode == 0
    log = (tmp_path / "log").read_text()
    done = llc("replay", "fix")
    assert done.returncode == 0, done.stderr
    assert "is identical: 14 events, 3 results; ends: success (terminal) in `done`" in done.stdout
    assert (tmp_path / "log").read_text() == log


def test_a_run_is_selected_by_id_loop_or_folder(llc: Llc, tmp_path: Path) -> None:
    """All three select the same run; the folder may have been moved."""
    llc("run", "fix")
    folder = history(tmp_path)
    moved = tmp_path / "elsewhere" / "artifact"
    shutil.copytree(folder, moved)
    for target in ("fix", folder.name, str(folder), "elsewhere/artifact"):
        assert answer(llc("replay", target, "--json"))["identical"] is True, target


def test_a_loop_name_selects_its_last_run(llc: Llc, tmp_path: Path) -> None:
    """Of two runs, the second found the work done."""
    llc("run", "fix")
    llc("run", "fix")
    assert answer(llc("replay", "fix", "--json"))["events"] == 7


def test_an_unknown_run_gets_a_suggestion(llc: Llc) -> None:
    """Exit code 2 and the nearest name."""
    llc("run", "fix")
    done = llc("replay", "fxi")
    assert done.returncode == 2
    assert "did you mean `fix`?" in done.stderr


def test_a_flow_is_identical(llc: Llc) -> None:
    """Its logs, waits and value."""
    assert llc("run", "countdown").stdout.strip().endswith('"landed"')
    assert answer(llc("replay", "countdown", "--json")) | {"run": ""} == {
        "run": "",
        "program": "countdown",
        "against": None,
        "identical": True,
        "complete": True,
        "same": 6,
        "events": 6,
        "difference": None,
        "left_out": None,
    }


def test_abnormal_ends_are_identical(llc: Llc, tmp_path: Path) -> None:
    """An exit code, a fault with its position, an effect refused by a script."""
    (tmp_path / "none.yaml").write_text("rules: []\n")
    for words in (
        ["run", "-e", "(begin (sleep 0) (exit 7))"],
        ["run", "-e", '(begin (sleep 0) (+ 1 "a"))'],
        ["run", "fix", "--script", "none.yaml"],
    ):
        llc(*words)
        name = "fix" if "fix" in words else "expression"
        done = llc("replay", name)
        assert done.returncode == 0, (words, done.stdout, done.stderr)


def test_an_interrupted_run_is_identical_up_to_its_end(llc: Llc, tmp_path: Path) -> None:
    """For every prefix of a journal, followed by a torn line."""
    llc("run", "fix")
    (journal,) = history(tmp_path).glob("*.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    assert len(lines) > 15
    for count in range(1, len(lines)):
        journal.write_bytes(b"".join(lines[:count]) + lines[count][:9])
        comparison = compare_with(history(tmp_path))
        assert comparison.difference is None, count
        assert not comparison.is_ended


def compare_with(folder: Path, loop: str | None = None) -> Comparison:
    """The comparison of the run in a folder with its own program or the text of another loop."""
    files = find.run_at(str(folder))
    image = files.load_image() if loop is None else emit(compile_text(loop, "edited.yaml").program)
    return diff.compare(files.recording(), image)


def test_an_edited_loop_shows_its_first_difference(llc: Llc, tmp_path: Path) -> None:
    """The first different effect: recorded, new, and its position in the source."""
    llc("run", "fix")
    (tmp_path / "edited.yaml").write_text(LOOP.replace("touch fixed;", "touch mended;"))
    done = llc("replay", "fix", "--against", "edited.yaml")
    assert done.returncode == 1
    assert "effect 2 differs from the recording" in done.stdout
    assert " --> edited.yaml:9:" in done.stdout
    assert "recorded: shell `touch fixed; echo '1'`" in done.stdout
    assert "now:      shell `touch mended; echo '1'`" in done.stdout
    assert "same up to there: 6 of 14 events, until `mend` in iteration 1" in done.stdout


@pytest.mark.parametrize(
    ("then", "now", "shown"),
    [
        ("a\nb 1\nc", "a\nb 2\nc", "command, line 2: `b 1` → `b 2`"),
        ("a\nb", "a\nb\nc", "command, line 3: nothing → `c`"),
        ("a", "b\nc", "command, line 1: `a` → `b`"),
        ("x" * 300 + "1 y", "x" * 300 + "2 y", f"command: `… {'x' * 40}1 y` → `… {'x' * 40}2 y`"),
        ("x" * 300, "x" * 301, f"command: `… {'x' * 40}` → `… {'x' * 41}`"),
    ],
)
def test_long_commands_are_shown_at_their_difference(then: str, now: str, shown: str) -> None:
    """The differing line or part of a long command; each command on one line."""
    recorded, requested = (EffectRequest(1, "shell", {"command": command}) for command in (then, now))
    result = diff.Difference(1, recorded, requested)
    text = diff_text.as_text(Comparison(0, 1, 0, result, True), {})
    assert f"    {shown}\n" in text
    assert len(text.splitlines()) == 5


@pytest.mark.parametrize(
    ("before", "after", "what", "event"),
    [
        ("touch fixed;", "touch  fixed;", "effect", 7),
        ("on_failure: mend", "on_failure: done", "route", 5),
        ("    on_failure: mend", "    on_failure: mend\n    evaluate: {type: exit_code}", None, 0),
        ('action: "touch', 'timeout: 60\n    action: "touch', "effect", 7),
        ("on_success: done", "on_success: mend", "route", 12),
        (
            "  done: {terminal: true}",
            "  done: {terminal: true, status: failure}",
            "note",
            14,
        ),
        (
            "capture: checked",
            "evaluate: {type: output_contains, pattern: z}\n    capture: checked",
            "verdict",
            4,
        ),
    ],
)
def test_the_first_difference_is_reported(
    llc: Llc, tmp_path: Path, before: str, after: str, what: str | None, event: int
) -> None:
    """An effect, a verdict, a route or the end, whichever is first; equal meaning is no difference."""
    llc("run", "fix")
    assert before in LOOP
    comparison = compare_with(history(tmp_path), LOOP.replace(before, after))
    result = comparison.difference
    assert (result.what if result else None, result.number if result else 0) == (what, event)


def test_a_changed_limit_differs_where_it_applies(llc: Llc, tmp_path: Path) -> None:
    """The report shows that the recorded run continued and the edited loop ends."""
    llc("run", "fix")
    result = compare_with(
        history(tmp_path), LOOP.replace("max_iterations: 5", "max_iterations: 1")
    ).difference
    assert result is not None
    assert isinstance(result.recorded, Note)
    assert diff_text.describe(result.recorded) == "enters `check` (iteration 2)"


def test_a_changed_flow_that_never_ends_is_reported(llc: Llc, tmp_path: Path) -> None:
    """Replay does not wait for a program that requests no more effects."""
    llc("run", "countdown")
    (tmp_path / "endless.sexp").write_text("(define (f n) (f (+ n 1)))\n(f 1)\n")
    files = find.run_at(str(history(tmp_path)))
    image = emit(compile_text("(define (f n) (f (+ n 1)))\n(f 1)\n", "endless.sexp").program)
    result = diff.compare(files.recording(), image, max_ticks=100_000).difference
    assert result is not None
    assert result.endless


def test_against_uses_the_options_of_the_run(llc: Llc, tmp_path: Path) -> None:
    """The compared loop gets the --context of the run, whatever its source."""
    (tmp_path / "word.yaml").write_text(
        LOOP.replace("states:", "context: {word: a}\nstates:", 1).replace(
            "echo check", "echo ${context.word}"
        )
    )
    llc("run", "word.yaml", "--context", "word=b")
    assert llc("replay", "word.yaml", "--against", "word.yaml").returncode == 0
    llc("compile", "word.yaml", "-o", "word.llb", "--context", "word=b")
    assert llc("replay", "fix", "--against", "word.llb").returncode == 0


@pytest.mark.parametrize(("number", "after"), [(8, True), (-1, False)])
def test_a_damaged_journal_is_compared_where_intact(
    llc: Llc, tmp_path: Path, number: int, after: bool
) -> None:
    """Damaged parts are left out, and the result is then not "identical"."""
    llc("run", "fix")
    (journal,) = history(tmp_path).glob("*.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    number = number if number > 0 else len(lines)
    lines[number - 1] = lines[number - 1].replace(b"event", b"evemt")
    journal.write_bytes(b"".join(lines))
    count = len(lines) - number
    more = f"; the {count} event{'' if count == 1 else 's'} after it are left out too" if after else ""
    note = f"line {number} is damaged and left out{more}"
    done = llc("replay", "fix")
    assert done.returncode == 1
    assert done.stderr.rstrip("\n").endswith(note)
    assert "is identical up to the damage" in done.stdout
    report = json.loads(llc("replay", "fix", "--json").stdout)
    assert not report["identical"]
    assert note in report["left_out"]
    assert "left out" in llc("trace", "fix", "--json").stderr
    assert note in llc("fork", "fix", "--at", "1").stderr


def test_an_unreadable_journal_is_an_error(llc: Llc, tmp_path: Path) -> None:
    """The commands print the reason on stderr and nothing on stdout."""
    llc("run", "fix")
    (journal,) = history(tmp_path).glob("*.jsonl")
    journal.unlink()
    journal.mkdir()
    for subcommand in ("replay fix", "trace fix", "record fix", "profile fix"):
        done = llc(*subcommand.split())
        assert (done.returncode, done.stdout) == (1, ""), subcommand
        assert done.stderr.startswith("error[no-record]: cannot read "), subcommand
        assert "is not a regular file" in done.stderr


def test_an_archived_run_without_its_end_is_not_resumable(llc: Llc, tmp_path: Path) -> None:
    """A run in the history has ended; no command suggests `llc resume`."""
    llc("run", "fix")
    (journal,) = history(tmp_path).glob("*.jsonl")
    journal.write_bytes(journal.read_bytes()[:-9])
    run = history(tmp_path).name
    for subcommand in ("status", "stop", "attach", "resume"):
        done = llc(subcommand, run)
        assert "has ended" in (done.stdout + done.stderr), subcommand
        assert "llc resume" not in (done.stdout + done.stderr), subcommand


def test_long_outputs_are_compared_and_their_loss_is_reported(llc: Llc, tmp_path: Path) -> None:
    """A blob is read when the program needs it."""
    (tmp_path / "long.yaml").write_text(
        "name: long\ninitial: a\nstates:\n"
        "  a: {action: 'seq 20000', capture: x, next: b}\n"
        "  b: {action: 'echo ${captured.x.output} | wc -c', next: c}\n"
        "  c: {terminal: true}\n"
    )
    llc("run", "long.yaml")
    assert llc("replay", "long").returncode == 0
    for file in (history(tmp_path) / "outputs").iterdir():
        os.unlink(file)
    done = llc("replay", "long")
    assert done.returncode == 1
    assert "error[damaged-record]" in done.stderr
    assert "the result of effect 1 is lost" in done.stderr


def test_concurrent_effects_are_compared_by_number() -> None:
    """Requests are compared independent of their start order; results come in recorded order."""
    text = """program side entry main
meta {"kind": "flow", "paradigm": null, "scope": [], "maintain": false, "limits": {}}
function main() locals(found)
  state begin
    parallel closure work() over list(1, 2, 3) -> found then end
  state end
    return found
function work(n) locals(r)
  state ask
    perform sleep map("seconds", n) -> r then told
  state told
    note log map("message", n)
    return n
"""
    from llc.ir.text import parse_program

    image = emit(parse_program(text, "side.ir"))
    from llc.runtime.recordings.recording import Answer

    recording = Recording("side", {}, lambda name, size: "")
    for seq in (1, 2):
        recording.events.append(EffectRequest(seq, "sleep", {"seconds": seq}))
    for seq in (2, 3, 1):
        recording.give(Answer(seq, {"elapsed_ms": 0}))
        recording.events.append(Note("log", {"message": seq}))
    recording.events.insert(3, EffectRequest(3, "sleep", {"seconds": 3}))
    recording.end = {
        "status": "success",
        "terminated_by": "return",
        "value": [1, 2, 3],
        "iterations": 0,
        "steps": 0,
    }
    assert diff.compare(recording, image).difference is None
    recording.events[1] = EffectRequest(2, "sleep", {"seconds": 5})
    result = diff.compare(recording, image).difference
    assert result is not None
    assert result.seq == 2


@pytest.mark.parametrize("subcommand", ["logs", "profile"])
def test_skipped_damaged_lines_are_reported(llc: Llc, tmp_path: Path, subcommand: str) -> None:
    """The commands show the rest, and on stderr what is missing; a torn last line is no damage."""
    llc("run", "fix")
    (journal,) = history(tmp_path).glob("*.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    (journal.parent / "active").unlink()  # it has the length of the whole journal
    lines[4] = lines[6] = b"nonsense\n"
    journal.write_bytes(b"".join(lines))
    done = llc(subcommand, "fix")
    assert done.returncode == 0
    assert done.stderr.rstrip("\n").endswith("fix.events.jsonl: 2 lines are damaged and left out")
    assert done.stdout
    journal.write_bytes(b"".join([*lines[:4], lines[5][:-9]]))
    assert llc(subcommand, "fix").stderr == ""


def test_each_event_of_a_journal_is_read_a_bounded_number_of_times(
    project_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comparison takes linear time, and a recording holds the offsets of its events, not the events."""
    (project_dir / "many.sexp").write_text("(map (lambda (n) (sleep 0)) (range 0 300))\n")
    launch_run.outcome(options.Values("many.sexp", quiet=True))
    recording = find.find_run("many").recording()
    assert isinstance(recording.events, StoredEvents)
    reads = 0
    at = EventFile.at

    def counted(file: EventFile, offset: int) -> Any:
        nonlocal reads
        reads += 1
        return at(file, offset)

    monkeypatch.setattr(EventFile, "at", counted)
    result = diff.compare(recording, find.find_run("many").load_image())
    assert result.difference is None
    assert reads <= 2 * (len(recording.events) + len(recording.answers))


@pytest.mark.parametrize("source", ['(begin (sleep 0) (log-message \'at "$1") (exit 3))', FLOW])
def test_lockstep_and_the_comparison_agree(project_dir: Path, source: str) -> None:
    """An identical run is recognised from its lines alone, whatever its outcome."""
    (project_dir / "some.sexp").write_text(source)
    launch_run.outcome(options.Values("some.sexp", quiet=True))
    files = find.find_run("some")
    image = files.load_image()
    recording = files.recording()
    result = lockstep.replay_in_lockstep(files, image)
    assert result is not None
    assert result.comparison == diff.compare(recording, image, exact=True)
    assert (result.results, result.end) == (len(recording.answers), recording.end)


def test_replay_reads_each_line_once(project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sequential run is compared while its journal is read, without an index."""
    (project_dir / "some.sexp").write_text(FLOW)
    launch_run.outcome(options.Values("some.sexp", quiet=True))
    monkeypatch.setattr(find.RunFiles, "recording", None)
    assert replay_command.replay("some").is_identical


@pytest.mark.parametrize(
    "edit",
    [
        lambda lines: [lines[0], *lines[2:]],  # a note is missing
        lambda lines: [*lines[:2], *lines[1:]],  # one was made twice
        lambda lines: [*lines[:-1], lines[-1].replace(b"landed", b"lost")],  # another end
        lambda lines: [*lines, lines[1]],  # more after the end
        lambda lines: [line.replace(b'"at 2"', b'"at 7"') for line in lines],
        lambda lines: [line.replace(b'"seconds":0', b'"seconds":1') for line in lines],
        lambda lines: [line.replace(b'"seq":2', b'"seq":9') for line in lines],
        lambda lines: [line.replace(b'"ts":', b'"loop":"x","ts":') for line in lines],
    ],
)
def test_lockstep_accepts_only_the_exact_record(
    project_dir: Path, edit: Callable[[list[bytes]], list[bytes]]
) -> None:
    """Every changed journal is left to the comparison, even with valid checksums."""
    (project_dir / "some.sexp").write_text(FLOW)
    launch_run.outcome(options.Values("some.sexp", quiet=True))
    files = find.find_run("some")
    journal = Path(files.journal)
    lines = journal.read_bytes().splitlines(keepends=True)
    changed = edit(lines)
    assert changed != lines
    journal.write_bytes(b"".join(codec.seal_json(line[: -codec.CRC_TAIL - 1]) for line in changed))
    assert lockstep.replay_in_lockstep(files, files.load_image()) is None
    journal.write_bytes(b"".join([*lines[:4], lines[4].replace(b"event", b"evemt"), *lines[5:]]))
    assert lockstep.replay_in_lockstep(files, files.load_image()) is None
