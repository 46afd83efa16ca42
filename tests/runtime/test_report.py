"""`llc report`: the model of a run says what the journal and the recorded machine say."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llc.runtime.recordings.find import find_run
from llc.runtime.recordings.recording import bounded
from llc.runtime.recordings.timeline import Timeline
from llc.runtime.report.model import RunModel

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


def run(llc: Llc, place: Path, text: str, name: str = "steps", suffix: str = "yaml") -> str:
    (place / ".loops" / f"{name}.{suffix}").write_text(text)
    result = llc("run", name, "--json")
    found: str = json.loads(result.stdout)["run"]
    return found


def data_of(target: str, **options: Any) -> dict[str, Any]:
    with RunModel(find_run(target), **options) as model:
        found = model.update(is_last=True)
    found["values"] = [json.loads(value) for value in found["values"]]
    return found


def apply(data: dict[str, Any], position: int) -> list[tuple[str, str, dict[str, Any]]]:
    """The slots at a position, as a page computes them."""
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
def test_every_position_is_the_machine_s(llc: Llc, place: Path, text: str, suffix: str) -> None:
    """The deltas give at each position the slots that `llc trace` shows there."""
    name = run(llc, place, text, suffix=suffix)
    data = data_of(name)
    files = find_run(name)
    recording = files.recording()
    with bounded(recording.about):
        points = list(Timeline(recording, files.load_image()))
    assert len(data["steps"]) == len(points) > 4
    for number, point in enumerate(points):
        expected = [(frame.function, frame.state, frame.slots) for frame in point.frames]
        assert apply(data, number) == expected
        if point.result is not None:
            assert point.asked is not None
            assert data["steps"][number]["seq"] == point.asked.seq


def test_steps_have_output_verdict_and_route(llc: Llc, place: Path) -> None:
    """What an effect gave and what followed is on its step."""
    data = data_of(run(llc, place, STEPS))
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


def test_a_live_run_is_given_in_parts(llc: Llc, place: Path) -> None:
    """Updates after any number of lines of the journal amount to the whole."""
    name = run(llc, place, STEPS)
    whole = data_of(name)
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
    assert len(steps) == len(whole["steps"])
    for number, (one, other) in enumerate(zip(steps, whole["steps"], strict=True)):
        assert one.get("subject") == other.get("subject")
        assert apply(parts, number) == apply(whole, number)


def test_the_command_writes_one_file(llc: Llc, place: Path) -> None:
    """The page is named after the run and loads nothing."""
    name = run(llc, place, STEPS)
    result = llc("report", "steps")
    assert (result.returncode, result.stdout) == (0, f"{name}.html\n")
    page = (place / f"{name}.html").read_text()
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=\"(?!#)", page)


def test_the_page_is_written_where_the_command_is_given(
    llc: Llc, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder of a project, too; and `--open` says where it is if no browser can be started."""
    name = run(llc, place, STEPS)
    (place / "sub").mkdir()
    monkeypatch.chdir(place / "sub")
    assert llc("report", "steps").stdout == f"{name}.html\n"
    monkeypatch.chdir(place / "sub")
    result = llc("report", "steps", "-o", "x.html", "--open", BROWSER=str(place / "none"))
    assert (result.returncode, result.stdout) == (1, "x.html\n")
    assert "cannot-open" in result.stderr
    assert str(place / "sub" / "x.html") in result.stderr
    assert {path.name for path in (place / "sub").iterdir()} == {f"{name}.html", "x.html"}
