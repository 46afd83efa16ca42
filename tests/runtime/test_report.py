"""`llc report`: the report model agrees with the journal and with the recorded machine."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_for

from llc.runtime.journal.codec import seal, unseal
from llc.runtime.journal.journal import Blobs
from llc.runtime.recordings.find import find_run
from llc.runtime.recordings.recording import bounded
from llc.runtime.recordings.timeline import Timeline
from llc.runtime.report import comparison
from llc.runtime.report.model import RunModel, as_data
from llc.runtime.report.values import MAX_TEXT_CHARS, Values

Llc = Callable[..., subprocess.CompletedProcess[str]]

STEPS = """
name: steps
initial: check
states:
  check:
    action: "printf '\\\\033[31mattempt %s\\\\033[0m' ${state.iteration}; test -e fixed"
    capture: found
    on_success: done
    on_failure: mend
  mend:
    action: "test -e half && touch fixed; touch half; true"
    next: check
  done: {terminal: true}
max_iterations: 9
"""
CALLS = """
(define (square n) (begin (system:execute_shell_command (command "true")) (* n n)))
(define (both n) (+ (square n) (square (+ n 1))))
(parallel-map both (list 1 5))
"""


def run(llc: Llc, project_dir: Path, text: str, loop: str = "steps", suffix: str = "yaml") -> str:
    (project_dir / ".loops" / f"{loop}.{suffix}").write_text(text)
    result = llc("run", loop, "--json")
    name: str = json.loads(result.stdout)["run"]
    return name


def data_of(target: str, **options: Any) -> dict[str, Any]:
    with RunModel(find_run(target), **options) as model:
        data = model.update(is_last=True)
    data["values"] = [json.loads(value) for value in data["values"]]
    return data


def slots_at(data: dict[str, Any], position: int) -> list[tuple[str, str, dict[str, Any]]]:
    """The frames with their slots at a position, computed as on the page."""
    steps = data["steps"]
    begin = max(at for at in range(position + 1) if "frames" in steps[at])
    frames = [(name, state, dict(slots)) for name, state, slots in steps[begin]["frames"]]
    for step in steps[begin + 1 : position + 1]:
        for at, name, value in step.get("slots", ()):
            if value is None:
                del frames[at][2][name]
            else:
                frames[at][2][name] = value
        for at, state in enumerate(step.get("at", ())):
            frames[at] = (frames[at][0], state, frames[at][2])
    values = data["values"]
    return [(f, s, {name: values[at] for name, at in slots.items()}) for f, s, slots in frames]


@pytest.mark.parametrize(("text", "suffix"), [(STEPS, "yaml"), (CALLS, "sexp")])
def test_slots_of_every_position_are_those_of_the_machine(
    llc: Llc, project_dir: Path, text: str, suffix: str
) -> None:
    """The deltas give the slots that `llc trace` shows at each position."""
    name = run(llc, project_dir, text, suffix=suffix)
    data = data_of(name)
    files = find_run(name)
    recording = files.recording()
    with bounded(recording.about):
        points = list(Timeline(recording, files.load_image()))
    assert len(data["steps"]) == len(points) > 4
    for number, point in enumerate(points):
        expected = [(frame.function, frame.state, frame.slots) for frame in point.frames]
        assert slots_at(data, number) == expected
        if point.result is not None:
            assert point.asked is not None
            assert data["steps"][number]["seq"] == point.asked.seq


def lanes_of(data: dict[str, Any]) -> list[tuple[str, str]]:
    """The lane and the kind of each action, in the order of their starts."""
    actions = [step for step in data["steps"] if step.get("kind") in ("shell", "agent")]
    done = sorted(actions, key=lambda step: int(step["seq"]))
    return [(data["lanes"][step.get("lane", 0)], step["kind"]) for step in done]


def test_agents_and_inner_loops_have_lanes(llc: Llc, project_dir: Path) -> None:
    """Effects of an agent are in its lane, others in the lane of the loop that requests them."""
    (project_dir / ".loops" / "config.yaml").write_text("agents: {helper: {argv: [cat]}}\n")
    (project_dir / ".loops" / "inner.yaml").write_text(
        "name: inner\ninitial: one\nstates:\n  one: {action: 'true', next: done}\n  done: {terminal: true}\n"
    )
    text = (
        "name: outer\ninitial: build\nstates:\n  build: {action: 'true', next: inside}\n"
        "  inside: {loop: inner, on_success: mend, on_failure: failed}\n"
        "  mend: {action_type: prompt, action: Fix it., agent: helper, next: judge}\n"
        "  judge: {action_type: prompt, action: Look., next: done}\n"
        "  done: {terminal: true}\n  failed: {terminal: true, status: failure}\n"
    )
    (project_dir / ".loops" / "outer.yaml").write_text(text)
    usage = "usage: {usd: 0.5, tokens: 1200}, duration_ms: 250"
    rules = f"rules:\n- {{kind: shell, output: ok}}\n- {{kind: agent, output: ok, {usage}}}\n"
    (project_dir / "world.yaml").write_text(rules)
    result = llc("run", "outer", "--script", "world.yaml", "--quiet")
    assert result.returncode == 0, result.stderr
    data = data_of("outer")
    assert lanes_of(data) == [
        ("program", "shell"),
        ("inner", "shell"),
        ("agent helper", "agent"),
        ("agent", "agent"),
    ]
    units = ("usd", "tokens", "calls", "seconds")
    used = [[step[unit] for unit in units] for step in data["steps"] if any(unit in step for unit in units)]
    assert used == [[0.5, 1200, 1, 0.25]] * 2


def test_a_strand_stays_in_its_lane(llc: Llc, project_dir: Path) -> None:
    """Each of several concurrent calls has a lane, also when the journal is read line by line."""
    calls = CALLS.replace("(list 1 5)", "(list 1 5 9)")
    complete = data_of(run(llc, project_dir, calls, suffix="sexp"))
    assert complete["lanes"] == ["program", "strand 2", "strand 3"]
    lanes: dict[str, set[int]] = {}
    for step in complete["steps"][:-1]:
        lanes.setdefault(str(step["items"]), set()).add(step.get("lane", 0))
    assert sorted(lanes) == ["[0]", "[1]", "[2]"]
    assert sorted(map(len, lanes.values())) == [1, 1, 1]
    assert set.union(*lanes.values()) == {0, 1, 2}
    files = find_run("steps")
    lines = Path(files.journal).read_bytes().splitlines(keepends=True)
    Path(files.journal).write_bytes(lines[0])
    steps: list[Any] = []
    with RunModel(files) as model:
        for line in [b"", *lines[1:]]:
            with open(files.journal, "ab") as file:
                file.write(line)
            update = model.update()
            steps[update["from"] :] = update["steps"]
    assert lanes_of({"steps": steps, "lanes": update["lanes"]}) == lanes_of(complete)


def test_steps_have_output_verdict_and_route(llc: Llc, project_dir: Path) -> None:
    data = data_of(run(llc, project_dir, STEPS))
    first = data["steps"][0]
    assert data["values"][first["result"]]["output"] == "\x1b[31mattempt 1\x1b[0m"
    assert (first["verdict"], first["tone"], first["route"]) == ("failure", "bad", "mend")
    assert [step.get("state") for step in data["steps"]] == [
        "check",
        "mend",
        "check",
        "mend",
        "check",
        "done",
    ]
    assert data["run"]["sentence"] == "steps ended with success in `done` after 5 effects in 3 iterations."
    nodes = [node[0] for node in data["program"]["graph"]["nodes"]]
    assert [nodes[step["node"]] for step in data["steps"]] == [step["state"] for step in data["steps"]]


def test_updates_of_a_live_run_add_up_to_the_complete_run(llc: Llc, project_dir: Path) -> None:
    """Updates after each line of the journal."""
    name = run(llc, project_dir, STEPS)
    complete = data_of(name)
    files = find_run(name)
    lines = Path(files.journal).read_bytes().splitlines(keepends=True)
    Path(files.journal).write_bytes(lines[0])
    with RunModel(files) as model:
        steps: list[Any] = []
        values: list[Any] = []
        for line in [b"", *lines[1:]]:
            with open(files.journal, "ab") as file:
                file.write(line)
            update = model.update()
            assert update["from"] <= len(steps)
            assert update["first_value"] == len(values)
            steps[update["from"] :] = update["steps"]
            values += [json.loads(value) for value in update["values"]]
    parts = {"steps": steps, "values": values}
    assert len(steps) == len(complete["steps"])
    for number, (one, other) in enumerate(zip(steps, complete["steps"], strict=True)):
        assert one.get("subject") == other.get("subject")
        assert slots_at(parts, number) == slots_at(complete, number)


def test_the_command_writes_one_file(llc: Llc, project_dir: Path) -> None:
    """The page is named after the run and loads no other file."""
    name = run(llc, project_dir, STEPS)
    result = llc("report", "steps")
    assert (result.returncode, result.stdout) == (0, f"{name}.html\n")
    page = (project_dir / f"{name}.html").read_text()
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=\"(?!#)", page)


def test_the_page_is_written_to_the_working_folder(
    llc: Llc, project_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a sub-folder of a project; `--open` names the file if no browser can be started."""
    name = run(llc, project_dir, STEPS)
    (project_dir / "sub").mkdir()
    monkeypatch.chdir(project_dir / "sub")
    assert llc("report", "steps").stdout == f"{name}.html\n"
    monkeypatch.chdir(project_dir / "sub")
    result = llc("report", "steps", "-o", "x.html", "--open", BROWSER=str(project_dir / "none"))
    assert (result.returncode, result.stdout) == (1, "x.html\n")
    assert "cannot-open" in result.stderr
    assert str(project_dir / "sub" / "x.html") in result.stderr
    assert {path.name for path in (project_dir / "sub").iterdir()} == {f"{name}.html", "x.html"}


# --- runs of earlier versions and damage ----------------------------------------------------------

JOURNALS = sorted((Path(__file__).parents[1] / "journals").glob("*.*/*/*/*-*"))


@pytest.mark.parametrize("folder", JOURNALS, ids=[f"{path.parts[-3]}/{path.name}" for path in JOURNALS])
def test_every_recorded_run_has_a_report(llc: Llc, project_dir: Path, folder: Path) -> None:
    """Crashed, damaged, resumed and forked runs and runs of agents have all effects, in the order of the
    results.
    """
    result = llc("report", str(folder), "--format", "json", RECORD_API_KEY="sesame-0123456789")
    assert result.returncode == 0, result.stderr
    assert "sesame" not in result.stdout
    (data,) = json.loads(result.stdout)
    history = find_run(str(folder)).history()
    assert [step["seq"] for step in data["steps"] if "result" in step] == history.order
    assert data["run"]["effects"] == len(history.order)
    # The recorded machine is executed up to the damage of a journal.
    shown = sum(
        "frames" in step or "slots" in step or "at" in step or "place" in step for step in data["steps"]
    )
    assert shown >= 1
    for number in range(len(data["steps"])):
        slots_at(data, number)


def test_damage_and_lost_programs_are_reported(llc: Llc, project_dir: Path) -> None:
    """Intact parts are shown; without the program there are no slots."""
    name = run(llc, project_dir, STEPS)
    journal = project_dir / ".loops" / ".history" / name / "steps.events.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b'"action_complete"' in line and b'"seq":3' in line)
    journal.write_bytes(b"".join([*lines[:at], b"garbage\n", *lines[at + 1 :]]))
    data = data_of(name)
    assert any("damaged" in note for note in data["run"]["notes"])
    assert [step["seq"] for step in data["steps"] if "result" in step] == [1, 2, 4, 5]
    assert any(mark["kind"] == "damage" for mark in data["run"]["marks"])
    slots_at(data, 2)
    journal.write_bytes(b"".join(lines))
    (journal.parent / "program.llb").unlink()
    (project_dir / ".loops" / "steps.yaml").unlink()
    data = data_of(name)
    assert "slots are not shown" in data["run"]["notes"][0]
    assert [step["seq"] for step in data["steps"] if "result" in step] == [1, 2, 3, 4, 5]
    assert llc("report", name, "-o", "x.html").returncode == 0


@pytest.mark.parametrize("end", [b"", b"x", b'{"event":"run_start"}\n', b"\xff\xfe\0\n" * 3])
def test_a_malformed_journal_causes_no_traceback(llc: Llc, project_dir: Path, end: bytes) -> None:
    folder = project_dir / ".loops" / ".history" / "odd-20240115-103000-0000"
    folder.mkdir(parents=True)
    (folder / "odd.events.jsonl").write_bytes(end)
    result = llc("report", str(folder), "-o", "x.html")
    assert result.returncode in (0, 1, 2)
    assert "Traceback" not in result.stderr


def test_an_active_run_has_a_report(llc: Llc, project_dir: Path) -> None:
    """It is running and has a pending effect; after a kill it crashed and can be resumed."""
    (project_dir / ".loops" / "wait.yaml").write_text(
        "name: wait\ninitial: first\nstates:\n  first: {action: 'echo one', next: second}\n"
        "  second: {action: 'touch here; until [ -e go ]; do sleep 0.02; done', next: done}\n"
        "  done: {terminal: true}\n"
    )
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", "wait", "-q"])
    try:
        wait_for((project_dir / "here").exists)
        wait_for(lambda: data_of("wait")["pending"])
        data = data_of("wait")
        assert (data["run"]["status"], data["run"]["sentence"]) == (
            "running",
            "wait is running in `second` after 1 effect in 1 iteration.",
        )
        # The time axis and the bar of the pending effect end now.
        end = data["axis"][-1][1]
        assert end > data["pending"][0]["start"]
        wait_for(lambda: data_of("wait")["axis"][-1][1] > end)
        assert [(step["kind"], step["state"]) for step in data["pending"]] == [("shell", "second")]
        assert data["steps"][-1]["state"] == "second"
        assert len(slots_at(data, 1)) == 1
    finally:
        process.kill()
        process.wait()
    (project_dir / "go").touch()
    # The keeper of the action holds the lock of the run until the action has ended.
    wait_for(lambda: data_of("wait")["run"]["sentence"].endswith("it can be resumed."))
    assert llc("resume", "wait").returncode == 0
    data = data_of("wait")
    assert data["run"]["resumed"] == 1
    assert [mark["kind"] for mark in data["run"]["marks"]] == ["resumed", "end"]


def test_elapsed_time_is_an_update(llc: Llc, project_dir: Path) -> None:
    """Without a new event an update has only the header and the axis, no steps."""
    (project_dir / ".loops" / "wait.yaml").write_text(
        "name: wait\ninitial: first\nstates:\n  first: {action: 'true', next: second}\n"
        "  second: {action: 'touch here; until [ -e go ]; do sleep 0.02; done', next: done}\n"
        "  done: {terminal: true}\n"
    )
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", "wait", "-q"])
    try:
        wait_for((project_dir / "here").exists)
        with RunModel(find_run("wait")) as model:
            first_end = model.update()["axis"][-1][1]

            def is_only_later() -> bool:
                update = model.update()
                is_later = update["axis"][-1][1] > first_end and update["pending"] != []
                return is_later and update["steps"] == [] and update["from"] == 2

            wait_for(is_only_later)
    finally:
        (project_dir / "go").touch()
        assert process.wait(120) == 0


def test_updates_follow_a_run_to_its_end(llc: Llc, project_dir: Path) -> None:
    """After the run's folder moved to the history, large outputs are read from there."""
    (project_dir / ".loops" / "grow.yaml").write_text(
        "name: grow\ninitial: first\nstates:\n"
        "  first: {action: 'touch here; until [ -e go ]; do sleep 0.02; done', next: second}\n"
        "  second: {action: 'seq 1 20000', next: done}\n  done: {terminal: true}\n"
    )
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", "grow", "-q"])
    try:
        wait_for((project_dir / "here").exists)
        with RunModel(find_run("grow")) as model:
            first = as_data(model.update())
            assert first["from"] == 0
            (project_dir / "go").touch()
            assert process.wait(120) == 0
            more = as_data(model.update())
    finally:
        process.kill()
        process.wait()
    assert more["from"] == 0
    assert "program" not in more
    values = first["values"] + more["values"]
    assert values[more["steps"][1]["result"]]["output"].endswith("\n20000\n")
    assert (more["run"]["status"], more["pending"]) == ("success", [])
    assert slots_at({"steps": more["steps"], "values": values}, 1)[0][2]["state"] == "second"


def test_a_step_has_its_file_changes(llc: Llc, project_dir: Path) -> None:
    """The diff is that of `llc diff` for the step, and `--no-outputs` omits it."""
    subprocess.run(["git", "init", "-q"], check=True)
    (project_dir / ".loops" / "config.yaml").write_text("record_files: all\n")
    name = run(llc, project_dir, STEPS.replace("touch half;", "touch half; echo precious > kept;"))
    data = data_of(name)
    diffs = [data["values"][step["diff"]] for step in data["steps"] if "diff" in step]
    assert "+precious" in diffs[0]
    assert diffs[0] == llc("diff", name, "2").stdout
    assert [row for step in data["steps"] for row in step.get("files", ())] == [
        ["A", "half"],
        ["A", "kept"],
        ["A", "fixed"],
    ]
    assert not any("diff" in step for step in data_of(name, is_bare=True)["steps"])


JUNK: list[Any] = [
    *(
        None,
        True,
        -1,
        10**30,
        1e308,
        "",
        "x\u202e\x1b[31m",
        "\ud800",
        [],
        [1],
        {},
        {"a": 1},
        [["A", "b"], [3]],
    ),
    *({"$blob": "zz", "size": "q"}, {"$blob": "0" * 64}, {"$secret": 4}, {"$secret": ["a", 5]}, {"$map": 3}),
    *({"$float": "zzz"}, "2026-13-45T00:00:00.000Z"),
]


def with_junk(generator: random.Random, value: Any) -> Any:
    """The value with a random part replaced by junk."""
    if isinstance(value, dict) and value and generator.random() < 0.8:
        name = generator.choice(list(value))
        return {**value, name: with_junk(generator, value[name])}
    if isinstance(value, list) and value and generator.random() < 0.7:
        at = generator.randrange(len(value))
        return [*value[:at], with_junk(generator, value[at]), *value[at + 1 :]]
    return generator.choice(JUNK)


@pytest.mark.parametrize("seed", range(40))
def test_journals_with_junk_values_cause_no_traceback(llc: Llc, project_dir: Path, seed: int) -> None:
    """Lines with valid checksums and arbitrary content give a report or an error message."""
    generator = random.Random(seed)
    folder = project_dir / "run-20240115-103000-0000"
    shutil.copytree(generator.choice(JOURNALS), folder)
    (journal,) = folder.glob("*.events.jsonl")
    lines = journal.read_bytes().splitlines()
    for _ in range(generator.choice((1, 1, 4))):
        at = generator.randrange(len(lines))
        event = unseal(lines[at]) or {}
        event.pop("crc", None)
        other = with_junk(generator, event)
        if event and isinstance(other, dict) and isinstance(other.get("event"), str):
            lines[at : at + generator.choice((0, 1, 1, 1))] = [seal(other)[:-1]]
    journal.write_bytes(b"".join(line + b"\n" for line in lines))
    for words in ((), ("--format", "perfetto"), ("--no-outputs",), (str(folder),)):
        result = llc("report", str(folder), *words, "-o", "x")
        assert "Traceback" not in result.stderr
        assert (result.returncode, result.stderr) == (0, "") or "error[" in result.stderr


# --- contents -------------------------------------------------------------------------------------


def test_secrets_and_omitted_outputs(llc: Llc, project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No format contains a secret; with `--no-outputs` none contains the output of commands."""
    monkeypatch.setenv("DEPLOY_TOKEN", "hush-hush-0123456789")
    text = STEPS.replace("test -e fixed", "echo $DEPLOY_TOKEN; printf 'prec%s' ious; test -e fixed")
    name = run(llc, project_dir, text)
    for form in ("html", "json", "perfetto"):
        shown = llc("report", name, "--format", form, "-o", "-", DEPLOY_TOKEN="hush-hush-0123456789").stdout
        assert "hush-hush" not in shown
    complete, bare = (json.dumps(data_of(name, is_bare=is_bare)["values"]) for is_bare in (False, True))
    assert "***\\nprecious" in complete
    assert "hush" not in complete
    assert "precious" not in bare
    assert "printf" in complete
    assert "printf" not in bare
    assert "precious" not in llc("report", name, "--format", "json", "--no-outputs").stdout


def test_long_texts_are_truncated_with_a_note() -> None:
    """The start and end of a line of ten megabytes are kept; the note names the file with the complete
    text.
    """
    text = "begin" + "x" * 10_000_000 + "end"
    values = Values(lambda name, size: text, lambda name: f"outputs/{name}")
    index = values.add_packed({"output": {"$blob": "5a", "size": len(text)}, "stderr": text})
    value = json.loads(values.items[index])
    for name, where in (("output", "; the whole text is in outputs/5a"), ("stderr", "")):
        assert len(value[name]) < MAX_TEXT_CHARS
        assert value[name].startswith("beginxx")
        assert value[name].endswith("xxend")
        note = re.search(r"\n\[… ([\d,]+) characters are left out(.*)\]\n", value[name])
        assert note is not None
        assert note[2] == where
        left_out = int(note[1].replace(",", ""))
        assert left_out + len(value[name]) - len(note[0]) == len(text)


def test_values_without_an_equivalent_in_javascript() -> None:
    """Large integers, non-finite numbers, lone surrogates and deep nesting."""
    values = Values(lambda name, size: "", lambda name: name)
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    odd = {"a": 2**60, "b": float("nan"), "c": float("inf"), "d": "\ud800", "e": deep, "f": [True, None, 0.5]}
    encoded = json.loads(values.items[values.add(odd)])
    assert (encoded["a"], encoded["b"], encoded["c"], encoded["d"]) == (str(2**60), "nan", "inf", "\ud800")
    assert encoded["f"] == [True, None, 0.5]
    assert "too deep" in json.dumps(encoded["e"])
    assert values.add(odd) == 0
    lost = Values(Blobs("/nonexistent").fetch, lambda name: name)
    assert (
        "lost"
        in json.loads(lost.items[lost.add_packed({"output": {"$blob": "0" * 64, "size": 9}})])["output"]
    )


# --- other formats --------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "suffix"), [(STEPS, "yaml"), (CALLS, "sexp")])
def test_trace_events_are_well_formed(llc: Llc, project_dir: Path, text: str, suffix: str) -> None:
    """Each event has the fields that the format requires; events of a thread do not overlap."""
    run(llc, project_dir, text, suffix=suffix)
    result = llc("report", "steps", "--format", "perfetto", "-o", "trace.json")
    assert (result.returncode, result.stdout) == (0, "trace.json\n")
    events = json.loads((project_dir / "trace.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} >= {"M", "X", "i"}
    ends: dict[int, float] = {}
    for event in events:
        assert isinstance(event["name"], str)
        assert all(isinstance(event[name], int) for name in ("pid", "tid"))
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert event["ts"] >= ends.get(event["tid"], 0)
            ends[event["tid"]] = event["ts"] + event["dur"]
        elif event["ph"] == "i":
            assert event["s"] in ("g", "p", "t")
    named = {event["tid"] for event in events if event["name"] == "thread_name"}
    assert named == {event["tid"] for event in events}
    assert (
        sum(event["ph"] == "X" and event["tid"] > 0 for event in events) == len(data_of("steps")["steps"]) - 1
    )
    refused = llc("report", "steps", "steps", "--format", "perfetto")
    assert (refused.returncode, "bad-option" in refused.stderr) == (2, True)
    assert "bad-option" in llc("report", "steps", "--format", "pdf").stderr


def test_two_runs_are_aligned(llc: Llc, project_dir: Path) -> None:
    """Equal runs have no difference; additional steps, other commands and other outputs are named."""
    first = run(llc, project_dir, STEPS)
    for name in ("fixed", "half"):
        (project_dir / name).unlink()
    second = run(llc, project_dir, STEPS)
    a, b = (model_of(name) for name in (first, second))
    assert [row[2] for row in comparison.align(a, b)] == [None] * 6
    for name in ("fixed", "half"):
        (project_dir / name).unlink()
    (project_dir / "half").touch()
    short = model_of(run(llc, project_dir, STEPS.replace("attempt", "try")))
    rows = comparison.align(a, short)
    assert "-\x1b[31mattempt 1\x1b[0m\n+\x1b[31mtry 1\x1b[0m" in rows[0][3]
    assert [row[:2] for row in rows] == [[0, 0], [1, 1], [2, 2], [3, None], [4, None], [5, 3]]
    assert [row[2] for row in rows] == [
        "arguments, result",
        None,
        "arguments, result, verdict, route",
        *["only in A"] * 2,
        None,
    ]
    result = llc("report", first, second)
    assert result.stdout == f"{first}-and-{second}.html\n"


def model_of(target: str) -> dict[str, Any]:
    with RunModel(find_run(target)) as model:
        return model.update(is_last=True)


def test_alignment_of_many_different_steps_is_not_quadratic() -> None:
    def model(state: str) -> dict[str, Any]:
        return {
            "steps": [{"state": f"{state}{n % 3}"} for n in range(20_000)],
            "values": [],
            "run": {"status": "", "error": None},
        }

    rows = comparison.align(model("a"), model("b"))
    assert len(rows) == 20_000
    assert all(row[2] for row in rows)


def test_the_time_of_day_is_not_a_difference() -> None:
    """The other fields of a clock's result are compared."""

    def model(time: str, value: str) -> dict[str, Any]:
        result = json.dumps({"time": time, "elapsed_ms": 3, "value": value})
        steps = [{"state": "a", "kind": "clock", "result": 0}]
        return {"steps": steps, "values": [result], "run": {"status": "", "error": None}}

    first = model("2026-01-01T00:00:00Z", "a")
    assert comparison.align(first, model("2026-01-02T00:00:00Z", "a"))[0][2] is None
    assert comparison.align(first, model("2026-01-01T00:00:00Z", "b"))[0][2] == "result"
