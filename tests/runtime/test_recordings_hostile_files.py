"""Forged journals and cases are read or refused with a message; nothing else happens."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laws import tried

from llc.frontend.source.files import read_source
from llc.frontend.source.yaml_tree import read_document
from llc.ir.diagnostics import CompileError
from llc.runtime.host.errors import UserError
from llc.runtime.journal import journal, reader
from llc.runtime.journal.events import Event
from llc.runtime.launch import run as launch_run
from llc.runtime.project import options
from llc.runtime.recordings import diff, diff_text, find, fork, make_case, run_cases, trace_text
from llc.runtime.recordings.recording import bounded
from llc.runtime.recordings.timeline import Timeline

LOOP = """name: fix
initial: check
states:
  check: {action: lint, capture: found, on_success: done, on_failure: mend}
  mend: {action: "mend ${captured.found.output}", next: check}
  done: {terminal: true}
max_iterations: 9
"""
WORLD = """
- {state: check, results: [{output: bad, exit_code: 1}, {output: ok}]}
- {state: mend, output: mended}
"""
REFUSALS = (UserError, CompileError, journal.JournalError)
VALUES = st.sampled_from(
    [
        *(None, True, -1, 0, 2**80, 1.5, "", "x", "$", [], [[]], [1, [2, 3]], {}, {"a": 1}),
        *({"$blob": "x", "size": 1}, {"$blob": "0" * 64, "size": "y"}, {"$float": "z"}, {"$map": 3}),
        *({"$secret": [1]}, {"context": [["a"]]}, {"context": 3}, {"kind": "not-performed"}),
        *({"fuel": "many"}, {"exit_code": "1"}),
    ]
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with one run and its case."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / ".loops").mkdir()
    (folder / ".loops" / "fix.yaml").write_text(LOOP)
    (folder / "world.yaml").write_text(WORLD)
    with contextlib.chdir(folder):
        launch_run.outcome(options.Values("fix", quiet=True, script="world.yaml", record="fix"))
        yield folder


def mutate(data: st.DataObject, root: Any) -> Any:
    """Plain data of which some values are replaced or removed."""
    box = [root]
    for _ in range(data.draw(st.integers(1, 3))):
        holder: Any = box
        key: Any = 0
        for _ in range(data.draw(st.integers(1, 6))):
            if not box or not isinstance(holder[key], dict | list) or not holder[key]:
                break
            holder = holder[key]
            key = data.draw(
                st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder)))
            )
        if not box:
            break
        if holder is box or data.draw(st.booleans()):
            holder[key] = copy.deepcopy(data.draw(VALUES))
        else:
            del holder[key]
    return box[0]


@settings(max_examples=tried(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_forged_journal_is_read_or_refused(
    project: Path, tmp_path_factory: Any, data: st.DataObject
) -> None:
    """Replay, trace, fork and record of a journal with valid checksums and arbitrary content."""
    (source,) = project.glob(".loops/.history/fix-*")
    folder = project / "forged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    (path,) = folder.glob("*.jsonl")
    events = [event.wire for event in reader.read(str(path)) if isinstance(event, Event)]
    changed = mutate(data, events)
    rows = changed if isinstance(changed, list) else []
    lines = [journal.seal(event) for event in rows if isinstance(event, dict)]
    path.write_bytes(b"".join(lines))
    with contextlib.chdir(project), contextlib.suppress(*REFUSALS):
        files = find.run_at(str(folder))
        recording, image = files.recording(), files.load_image()
        with contextlib.suppress(*REFUSALS):
            comparison = diff.compare(recording, image)
            assert diff_text.as_text(comparison, diff_text.sources_of(image)) is not None
            json.dumps(diff_text.as_json(comparison))
        with contextlib.suppress(*REFUSALS), bounded(recording.about):
            timeline = Timeline(recording, image)
            for point in timeline:
                json.dumps(point.to_json())
                assert trace_text.as_text(point, timeline)
                timeline.find_text(point.number, "no such text")
        with contextlib.suppress(*REFUSALS):
            fork.find_point(recording, image, 2, None, None)
        with contextlib.suppress(*REFUSALS):
            fork.find_point(recording, image, None, "none", 7)
        with contextlib.suppress(*REFUSALS):
            make_case.make(files)


@settings(max_examples=tried(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_forged_case_is_read_or_refused(project: Path, data: st.DataObject) -> None:
    with contextlib.chdir(project):
        document = read_document(read_source(".loops/tests/fix.yaml"))
        assert document.root is not None
        plain = mutate(data, document.plain(document.root))
        Path("forged.yaml").write_text(json.dumps(plain))
        (tested,) = run_cases.run_cases(["forged.yaml"], update=True)
        json.dumps(run_cases.as_json([tested]))
        assert run_cases.junit([tested])
        assert io.StringIO(run_cases.line(tested, True)).readline()
