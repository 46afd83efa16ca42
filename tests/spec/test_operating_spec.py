"""`spec/operating.md`: its commands run with its files and print the shown output."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from spec.blocks import Shell, take, text_of

from llc.runtime.host import secrets
from llc.runtime.host.paths import KEPT
from llc.runtime.inspection import logs, status, stop
from llc.runtime.journal import codec, events
from llc.runtime.journal.events import RunStart
from llc.runtime.journal.run_folder import RunFolder
from llc.runtime.runs import runs

TEXT = text_of("operating.md")
BLOCKS = take("operating.md", "yaml", "console")
# Parts of the output that differ between runs.
VOLATILE = (
    (re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}\b"), "-RUN"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "MOMENT"),
    (re.compile(r"\d{4}-\d\d-\d\d"), "DAY"),
    (re.compile(r"\d\d:\d\d:\d\d\.\d{3}"), "CLOCK"),
    (re.compile(r"\b\d+\.\ds"), "TIME"),
    (re.compile(r"pid \d+"), "PID"),
    (re.compile(r" +$", re.MULTILINE), ""),
)


def stable(text: str) -> str:
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return text.strip("\n")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    stop.stop(stop.live_runs(None), 1.0)


def test_the_commands_print_the_shown_output(project: Path, tmp_path: Path) -> None:
    """Each console block, run in order with the files above it, prints the shown output.

    Commands that observe a running run are repeated until they print this output.
    """
    Shell(tmp_path).follow(BLOCKS, stable)


def test_the_figures_match_the_code() -> None:
    """The chapter has the current limits and names."""
    for fact in (
        f"beyond the last {KEPT};",
        f"the last {logs.MAX_LINES} lines are shown",
        *(f"`{suffix}`" for suffix in secrets.SUFFIXES),
    ):
        assert fact in TEXT
    assert (secrets.SHORTEST, secrets.SHORTEST_NAMED) == (8, 4)


def test_every_field_of_a_status_is_documented_and_shown(project: Path) -> None:
    """The table has every field of `llc status --json`, and `status.as_text` shows it.

    A failure names the field and the file that was forgotten.
    """
    runs.make_running_folder("")
    run = RunFolder.create("", "x")
    Path(run.journal).write_bytes(codec.seal({codec.KIND: RunStart.name}))
    look = status.RunView(run)
    fields = set(look.status())
    look.close()
    table = TEXT.partition("| `--json` | meaning |")[2].partition("\n\n")[0]
    documented = set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines()[2:])))
    shown = set(re.findall(r"status\[[\"'](\w+)[\"']\]", inspect.getsource(status)))
    only_json = {"started_at", "ended_at", "steps", "value"}
    assert fields - documented == set(), "add these to the table in spec/operating.md"
    assert documented - fields == set(), "spec/operating.md has these, and status.py has not"
    assert fields - shown - only_json == set(), "show these in `as_text` of runtime/inspection/status.py"


def test_every_field_of_an_event_is_read() -> None:
    """The fold of the journal, or a view of it, reads every field; a failure names the field."""
    package = Path(status.__file__).parents[1]
    source = (
        "".join(
            path.read_text("utf-8")
            for path in package.rglob("*.py")
            if path.name not in ("events.py", "journal.py")
        )
        + inspect.getsource(events).partition("class RunStart")[2]
    )
    unread = [
        f"{kind.name}.{name}"
        for kind in events.KINDS.values()
        for name in vars(kind)
        if isinstance(vars(kind)[name], events.Field) and not re.search(rf"\.{name}\b|\b{name}=\w", source)
    ]
    by_name = {"run_resume.unknown", "evaluate.confidence"}  # shown as they are
    assert set(unread) - by_name == set(), "read these in runtime/journal/run_history.py"


def test_every_field_of_an_event_is_written() -> None:
    """The code that makes an event sets every field; a failure names the field."""
    package = Path(status.__file__).parents[1]
    written: set[str] = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                made = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                written |= {f"{made}.{keyword.arg}" for keyword in node.keywords}
    unwritten = [
        f"{kind.__name__}.{name}"
        for kind in events.KINDS.values()
        if kind.by == "driver"
        for name, field in vars(kind).items()
        if isinstance(field, events.Field) and f"{kind.__name__}.{name}" not in written
    ]
    added = {"RunStart.forked_from"}  # by `recordings/fork.py`, to the line that it copies
    assert set(unwritten) - added == set(), (
        "give these where the event is made, such as in runtime/launch/run.py"
    )
