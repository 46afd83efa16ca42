"""The verbs for what is on record: replay, record, test, fork, trace."""

from __future__ import annotations

import json
import os.path
import sys

from ..host import files
from ..host.errors import EXIT_FAILURE, EXIT_OK, UserError, refuse_missing_folder
from ..host.screen import Screen
from ..journal.run_folder import RunFolder
from ..project import options
from ..project.options import FLAG, NUMBER, TEXT, Option, values
from .declare import ANY, JSON, ONE, Argument, command, complete_any_run
from .output import warn, write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def complete_case(incomplete: str) -> list[str]:
    """Names of cases in `.loops/tests/`, and paths."""
    from ..recordings import cases

    found = cases.find_cases([]) if files.isdir(cases.FOLDER) else []
    names = [os.path.splitext(os.path.relpath(path, cases.FOLDER))[0] for path in found]
    folder, _, start = incomplete.rpartition("/")
    try:
        entries = sorted(files.listdir(folder or "."))
    except OSError:
        entries = []
    for file in entries:
        path = os.path.join(folder, file)
        if file.startswith(start) and (start or not file.startswith(".")):
            if files.isdir(path):
                names.append(path + "/")
            elif file.endswith(cases.SUFFIXES) and cases.is_case(path):
                names.append(path)
    return [name for name in names if name.startswith(incomplete)]


def complete_record(incomplete: str) -> list[str]:
    return [*complete_any_run(incomplete), *complete_case(incomplete)]


@command(
    (),
    Argument(
        "run", ONE, "A run's id or folder, a loop's name: its last run; or a case.", "RUN", complete_record
    ),
    Option(
        "against", "--against", TEXT, "Tell the run with this program: where would it have differed?", "LOOP"
    ),
    JSON,
    examples=("llc replay fix-types", "llc replay fix-types --against edited.yaml"),
)
def replay(given: dict[str, Any]) -> int:
    from ..recordings import replay_command

    told = replay_command.replay(given["run"], given["against"])
    if told.recording.left_out:
        warn(f"note: {told.recording.left_out}")
    if given["json"]:
        write_json(told.to_json())
    else:
        write(told.as_text(Screen(sys.stdout).color))
    return EXIT_OK if told.is_identical else EXIT_FAILURE


@command(
    (),
    Argument("run", ONE, "A run's id or folder, or a loop's name: its last run.", "RUN", complete_any_run),
    Option(
        "output",
        "--output -o",
        TEXT,
        "The case: a path, or a name in .loops/tests/; by default the loop's name.",
        "CASE",
    ),
    Option("force", "--force", FLAG, "Replace a case that is there."),
    JSON,
    examples=("llc record fix-types", "llc record fix-types -o tests/loops/types-clean.yaml"),
)
def record(given: dict[str, Any]) -> int:
    from ..recordings import case_writer, cases, find, make_case

    path = cases.case_path(given["output"]) if given["output"] else None
    make_case.refuse_taken(path, given["force"])
    case, notices = make_case.make(find.find_run(given["run"]), path)
    case_writer.write(case)
    for notice in notices:
        warn(f"note: {notice}")
    if given["json"]:
        write_json(
            {
                "case": case.path,
                "source": case.source or None,
                "normalized": list(case.normalized),
                "notes": notices,
            }
        )
    else:
        write(f"recorded {case.path}\n")
    return EXIT_OK


@command(
    (),
    Argument(
        "paths", ANY, "Cases, or folders of them; without any, .loops/tests/.", "[CASE]…", complete_case
    ),
    Option("wanted", "-k", TEXT, "Only cases with this in their path.", "TEXT"),
    Option("update", "--update", FLAG, "Rewrite what failing cases expect."),
    Option("junit", "--junit", TEXT, "Write a report for CI.", "FILE.xml"),
    JSON,
    examples=("llc test", "llc test -k types --update", "llc test tests/loops --junit report.xml"),
)
def test(given: dict[str, Any]) -> int:
    from ..journal import journal
    from ..recordings import run_cases

    if given["junit"]:
        refuse_missing_folder(given["junit"])
    screen = Screen(sys.stdout)
    results = []
    for tested in run_cases.tell_cases(given["paths"] or [], given["wanted"], given["update"]):
        results.append(tested)
        if not given["json"]:
            write(run_cases.line(tested, screen.color))
    if given["junit"]:
        journal.write_file(given["junit"], run_cases.junit(results), durable=False)
    if given["json"]:
        write_json(run_cases.as_json(results))
    else:
        write(run_cases.summary(results))
    return run_cases.exit_code(results)


_GOING_ON = tuple(row for row in options.RESUME if row.name != "on_unknown")


@command(
    (*options.OVERRIDES, *_GOING_ON),
    Argument("run", ONE, "A run's id or folder, or a loop's name: its last run.", "RUN", complete_any_run),
    Option("at", "--at", NUMBER, "Before the effect of this number (`llc trace`).", "N"),
    Option("state", "--state", TEXT, "Where this state is entered.", "NAME"),
    Option("iteration", "--iteration", NUMBER, "… in this iteration.", "K"),
    Option("with_", "--with", TEXT, "Go on with this program, if the past is the same under it.", "LOOP"),
    examples=(
        "llc fork fix-types --at 12",
        "llc fork fix-types --state fix --iteration 3",
        "llc fork fix-types --at 12 --with edited.yaml",
    ),
)
def fork(given: dict[str, Any]) -> int:
    from ..launch import resume as launch
    from ..recordings import fork as forking

    own = {name: given.pop(name) for name in ("run", "at", "state", "iteration")}
    target = given.pop("with_") or ""
    changes = values(options.OVERRIDES, target, {row.name: given.pop(row.name) for row in options.OVERRIDES})
    is_changed = bool(target) or any(value for value in vars(changes).values())

    def make() -> RunFolder:
        forked = forking.fork(
            own["run"], own["at"], own["state"], own["iteration"], changes if is_changed else None
        )
        if not given["quiet"]:
            Screen(sys.stderr).write(f"{forked}\n")
        return forked.run

    return launch.fork(values(options.RESUME, "", given), make)


@command(
    (),
    Argument(
        "run", ONE, "A run's id or folder, a loop's name: its last run; or a case.", "RUN", complete_record
    ),
    Option("at", "--at", TEXT, "One point: an effect's number, iN or a state.", "N"),
    JSON,
    examples=("llc trace fix-types", "llc trace fix-types --at 12", "llc trace fix-types --json | jq .state"),
)
def trace(given: dict[str, Any]) -> int:
    from ..recordings import replay_command, trace_text
    from ..recordings.recording import bounded
    from ..recordings.timeline import Tape

    recording, image = replay_command.load(given["run"])
    if recording.left_out:
        warn(f"note: {recording.left_out}")
    with bounded(recording.about):
        tape = Tape(recording, image)
        number = None
        if given["at"] is not None:
            number = tape.find_place(given["at"])
            if number is None:
                raise UserError(
                    "no-such-point",
                    f"there is no effect, iteration or state `{given['at']}` in {recording.name}",
                    f"it has {len(tape.effects)} effects; `i3` is the third iteration",
                )
        is_live = Screen(sys.stdout).is_live and sys.stdin is not None and sys.stdin.isatty()
        if number is not None and not given["json"]:
            write(trace_text.as_text(tape.at(number), tape))
        elif given["json"] or not is_live:
            for point in (tape.at(number),) if number is not None else tape:
                write(json.dumps(point.to_json(), ensure_ascii=False) + "\n")
        else:
            from ..recordings.trace_tui import TraceView

            TraceView(tape).run()
    return EXIT_OK
