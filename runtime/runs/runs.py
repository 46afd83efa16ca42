"""Where loops and runs are kept: names to files, run folders, the runs of a project.

    .loops/<name>.yaml                    a loop; `<name>.sexp` is a flow
    .loops/config.yaml                    see `configuration`
    .loops/.running/<run>/                a run that has not ended: `<name>.events.jsonl` (its journal),
                                          `<name>.state.json`, `<name>.log`, `<name>.live`, `program.llb`,
                                          `lock`, `active`, `outputs/`
    .loops/.history/<run>/                the same folder once the run has ended
    .loops/.cache/                        compiled images; see `cache`

A run is called `<name>-YYYYMMDD-HHMMSS-xxxx`, the last part the fraction of the second in hex. Whatever
a loop is called, its runs stay inside these folders. What a run is, the first line of its journal tells;
a folder without one, left by a start that was killed, is none. Who may run is decided by `locks`.
"""

from __future__ import annotations

import json
import os.path
import re

from ..host import clock, files
from ..host.errors import EXIT_FAILURE, UserError, reason
from ..journal.journal import last_event, unseal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from typing import Any

# The project: the directory we are in.
ROOT = ""
LOOPS = ".loops"
RUNNING = os.path.join(LOOPS, ".running")
HISTORY = os.path.join(LOOPS, ".history")
# Of each loop so many ended runs are kept where nothing else is said.
KEPT = 100
# What the project says about all its loops; see `configuration`. No loop can have this name,
# nor that of the file which declares tools (`frontend/tasks/tools_file.py`).
CONFIG = "config.yaml"
TOOLS = "tools.yaml"
SOURCE_SUFFIXES = (".yaml", ".yml", ".sexp")
IMAGE_SUFFIX = ".llb"
# The program a run begins with, in its folder; those it goes on with are `program-2.llb` and so on.
FIRST_IMAGE = "program.llb"

HOW_TO_BEGIN = "start one with: llc run LOOP"

_RUN_ID = re.compile(r"(.+)-\d{8}-\d{6}-[0-9a-f]{4}")
_SUFFIX = len("-YYYYMMDD-HHMMSS-xxxx")
_LONGEST_NAME = 80
# What a lock file tells, of the process and of its run.
_HELD = {
    **dict.fromkeys(
        ("run", "start_time", "since", "parent", "program", "path", "script", "started_at", "host"), str
    ),
    **dict.fromkeys(("pid", "ticket"), int),
    **dict.fromkeys(("background", "queued"), bool),
    **dict.fromkeys(("scope", "waits_for"), list),
}
_LONGEST_START = 1 << 20


# --- loops ------------------------------------------------------------------------------------


def loop_files(root: str = ROOT) -> dict[str, str]:
    """The loops of a project: name → path as shown (relative to `root`), sorted by name."""
    try:
        names = sorted(files.listdir(os.path.join(root, LOOPS)))
    except OSError:
        return {}
    found: dict[str, str] = {}
    for file in names:
        stem, suffix = os.path.splitext(file)
        # `x.fsm.yaml` is what `llc compile -o` writes; it can be run by its path.
        if (
            file not in (CONFIG, TOOLS)
            and suffix in SOURCE_SUFFIXES
            and not file.startswith(".")
            and not stem.endswith(".fsm")
        ):
            found.setdefault(stem, os.path.join(LOOPS, file))
    return dict(sorted(found.items()))


def is_path(target: str) -> bool:
    """Whether a target is meant as a file's path and not as a loop's name."""
    return os.path.sep in target or target.endswith((*SOURCE_SUFFIXES, IMAGE_SUFFIX))


def resolve(target: str, root: str = ROOT) -> str:
    """The file that a loop's name or a path means. Raises UserError."""
    if is_path(target):
        if files.isfile(os.path.join(root, target)):
            return target
        if files.isdir(os.path.join(root, target)):
            raise UserError("not-a-loop", f"`{target}` is a directory", "name a loop file in it")
        if not files.lexists(os.path.join(root, target)):
            raise UserError("unknown-file", f"there is no file `{target}`", _suggest_path(target, root))
        return target  # a pipe or a device: reading it will tell
    for suffix in SOURCE_SUFFIXES:
        path = os.path.join(LOOPS, target + suffix)
        if not target or target + suffix == CONFIG or not files.lexists(os.path.join(root, path)):
            continue
        if files.isfile(os.path.join(root, path)):
            return path
        raise UserError("not-a-loop", f"`{path}` is {_what(os.path.join(root, path))}", "a loop is a file")
    raise UserError("unknown-loop", f"no loop named `{target}` in {LOOPS}/", _suggest_name(target, root))


def _what(path: str) -> str:
    """What stands where a file was looked for."""
    if files.isdir(path):
        return "a directory"
    return (
        "no regular file" if files.exists(path) else f"a link to `{files.readlink(path)}`, which is not there"
    )


def _suggest_name(target: str, root: str) -> str:
    from ...ir.diagnostics import suggest

    if files.isfile(os.path.join(root, target)):
        return f"to run the file `{target}`, write `./{target}`"
    return suggest(target, loop_files(root), "loops here") or (
        f"write the loop to {LOOPS}/{target or 'name'}.yaml, or give a path"
    )


def _suggest_path(target: str, root: str) -> str | None:
    from ...ir.diagnostics import suggest

    folder, file = os.path.split(target)
    loop = os.path.join(LOOPS, file)
    if loop in loop_files(root).values():
        return f"did you mean `{loop}`?"
    try:
        entries = files.listdir(os.path.join(root, folder or "."))
    except OSError:
        return f"there is no directory `{folder}` either" if folder else None
    loops = [os.path.join(folder, file) for file in entries if is_path(file)]
    return suggest(target, sorted(loops), "loops there")


# --- runs -------------------------------------------------------------------------------------


def slug(name: str) -> str:
    """A loop's name made fit for a file name: it cannot leave its folder, hide or grow long."""
    safe = "".join(ch if ch.isalnum() or ch in "._-" else "-" for ch in name)
    safe = safe.encode("ascii", "replace").decode().replace("?", "-").lstrip(".-")
    return safe[:_LONGEST_NAME] or "loop"


def has_ended(path: str) -> bool:
    """Whether a file of a run stands in the history, where runs go as they end."""
    return os.path.dirname(os.path.dirname(path)).endswith(HISTORY)


class RunFolder:
    """The folder of one run and the files in it."""

    __slots__ = ("id", "image_name", "path", "root")

    def __init__(self, root: str, path: str) -> None:
        self.root = root
        self.path = path
        # The program it runs now; where a run went on with a changed one there are several.
        self.image_name = FIRST_IMAGE
        self.id = os.path.basename(path)

    @classmethod
    def create(cls, root: str, name: str, seconds: float | None = None) -> RunFolder:
        """A new folder for a run of the loop `name`, begun `seconds` after 1970. Raises UserError."""
        # Sorted by name the runs of a loop are in the order they began.
        moment = int((clock.time() if seconds is None else seconds) * 0x10000)
        parent = os.path.join(root, RUNNING)
        for ticks in range(moment, moment + 1000):
            begun = clock.strftime("%Y%m%d-%H%M%S", clock.gmtime(ticks >> 16))
            path = os.path.join(parent, f"{slug(name)}-{begun}-{ticks & 0xFFFF:04x}")
            try:
                files.mkdir(path, 0o700)
            except FileExistsError:
                continue
            except OSError as error:
                raise UserError(
                    "cannot-write", f"cannot create {path}: {reason(error)}", exit_code=EXIT_FAILURE
                ) from None
            return cls(root, path)
        raise UserError("cannot-write", f"no free name for a run in {parent}", exit_code=EXIT_FAILURE)

    @property
    def name(self) -> str:
        """What the run's files are called after: the loop's name as `slug` gives it."""
        match = _RUN_ID.fullmatch(self.id)
        return match[1] if match else self.id

    @property
    def journal(self) -> str:
        return os.path.join(self.path, f"{self.name}.events.jsonl")

    @property
    def state(self) -> str:
        return os.path.join(self.path, f"{self.name}.state.json")

    @property
    def live(self) -> str:
        return os.path.join(self.path, f"{self.name}.live")

    @property
    def log(self) -> str:
        return os.path.join(self.path, f"{self.name}.log")

    @property
    def image(self) -> str:
        return os.path.join(self.path, self.image_name)

    @property
    def lock(self) -> str:
        return os.path.join(self.path, "lock")

    @property
    def outputs(self) -> str:
        return os.path.join(self.path, "outputs")

    def start(self) -> dict[str, Any]:
        """The `run_start` its journal begins with; {} where that is missing or damaged."""
        return start_of(self.journal)

    def end(self) -> dict[str, Any] | None:
        """The `run_end` its journal ends with; None where it has not ended."""
        event = last_event(self.journal)
        return event if event is not None and event["event"] == "run_end" else None

    def is_husk(self) -> bool:
        """Whether a start was cut off here before the run was on record: nothing was performed."""
        if files.exists(self.state):
            return False
        try:
            with files.open(self.journal, "rb") as file:
                return not file.readline(_LONGEST_START).endswith(b"\n")
        except OSError:
            return True

    def about(self) -> dict[str, Any]:
        """What is known of the run: program, path, script by its journal; pid, scope … by its lock file."""
        start = self.start()
        names = ("program", "path", "script")
        told: dict[str, Any] = {name: start[name] for name in names if isinstance(start.get(name), str)}
        more = {"started_at": begun_at(start), "forked_from": forked_from(start)}
        return {**self._held(), **told, **{name: value for name, value in more.items() if value is not None}}

    def _held(self) -> dict[str, Any]:
        try:
            with files.open(self.lock, "rb") as file:
                found = json.loads(file.read(1 << 20))
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(found, dict):
            return {}
        # A lock file may have come from anywhere: what is not as we write it is left out.
        held = {name: found[name] for name, kind in _HELD.items() if type(found.get(name)) is kind}
        for name in ("scope", "waits_for"):
            if name in held:
                held[name] = [item for item in held[name] if isinstance(item, str)]
        return held

    def discard(self) -> None:
        """Remove the folder of a run that could not begin, as far as that can be done."""

        files.rmtree(self.path, ignore_errors=True)

    def finish(self) -> None:
        """Move the folder to the history: the run has ended. Raises UserError."""
        target = os.path.join(self.root, HISTORY, self.id)
        try:
            make_private(os.path.dirname(target))
            files.rename(self.path, target)
        except OSError as error:
            raise UserError(
                "cannot-write", f"cannot move the run to {target}: {reason(error)}", exit_code=EXIT_FAILURE
            ) from None
        self.path = target


def start_of(journal: str) -> dict[str, Any]:
    """The `run_start` that a journal begins with; {} where that is missing or damaged."""
    try:
        with files.open(journal, "rb") as file:
            event = unseal(file.readline(_LONGEST_START)[:-1])
    except OSError:
        return {}
    return event if event is not None and event["event"] == "run_start" else {}


def begun_at(start: dict[str, Any]) -> str | None:
    """When a run began, by its `run_start`: one that is forked has the past of another before that."""
    told = start.get("forked_from")
    forked = told.get("ts") if isinstance(told, dict) else None
    ts = forked if isinstance(forked, str) else start.get("ts")
    return ts if isinstance(ts, str) else None


def forked_from(start: dict[str, Any]) -> dict[str, Any] | None:
    """The `run` whose past a run shares, and the effect `at` which they part; None for a run of its own."""
    told = start.get("forked_from")
    if not isinstance(told, dict) or not isinstance(told.get("run"), str):
        return None
    at = told.get("at")
    return {"run": told["run"], "at": at if type(at) is int else None}


def make_private(path: str) -> None:
    """Make a folder for what we keep; version control is told to leave it alone. Raises OSError."""
    if files.isdir(path):
        return
    files.makedirs(path, mode=0o700, exist_ok=True)
    with files.open(os.path.join(path, ".gitignore"), "w", encoding="ascii") as file:
        file.write("*\n")


def make_running_folder(root: str) -> str:
    """The folder of the runs that have not ended, made where it is missing. Raises UserError."""
    path = os.path.join(root, RUNNING)
    try:
        make_private(path)
    except OSError as error:
        raise UserError(
            "cannot-write",
            f"cannot create {path}: {reason(error)}",
            "a run keeps its journal there; run it in a directory that can be written",
            EXIT_FAILURE,
        ) from None
    return path


def runs_in(root: str, folder: str = RUNNING, but: Container[str] = ()) -> Iterator[RunFolder]:
    """The runs in RUNNING or HISTORY, those that began last first, `but` these."""
    parent = os.path.join(root, folder)
    try:
        names = files.listdir(parent)
    except OSError:
        return
    found = [name for name in names if name not in but and _RUN_ID.fullmatch(name)]
    for name in sorted(found, key=_begun, reverse=True):
        path = os.path.join(parent, name)
        if files.isdir(path):
            yield RunFolder(root, path)


def count_past(root: str, name: str) -> int:
    """How many ended runs have files called after `name`."""
    return len(_called(root, HISTORY, name))


def unfinished_before(run: RunFolder) -> RunFolder | None:
    """The run of the same name that began last before it, if that has not ended. Others are not looked at."""
    names = [name for name in _called(run.root, RUNNING, run.name) if name < run.id]
    return RunFolder(run.root, os.path.join(run.root, RUNNING, max(names))) if names else None


def _called(root: str, folder: str, name: str) -> list[str]:
    """The runs there whose files are called after `name`."""
    try:
        found = files.listdir(os.path.join(root, folder))
    except OSError:
        return []
    return [one for one in found if one.startswith(f"{name}-") and len(one) == len(name) + _SUFFIX]


def _begun(run_id: str) -> tuple[str, str]:
    return run_id[-20:], run_id


def find(target: str, root: str = ROOT) -> RunFolder:
    """The unfinished run that `target` means: a run's id, else the last one of a loop. Raises UserError."""
    running = list(runs_in(root))
    for run in running:
        if run.id == target:
            return run
    running = [run for run in running if not run.is_husk()]
    for run in running:
        if is_run_of(run, target):
            return run
    for run in runs_in(root, HISTORY):
        if run.id == target or is_run_of(run, target):
            raise UserError(
                "run-ended",
                f"there is nothing to resume: {run.id} has ended",
                f"its journal is {run.journal}",
            )
    from ...ir.diagnostics import suggest

    names = [name for run in running for name in (str(run.about().get("program", run.name)), run.id)]
    raise UserError(
        "unknown-run",
        f"no unfinished run of `{target}`",
        suggest(target, names, "unfinished runs") or f"no run in {RUNNING}/ is unfinished",
    )


def look_up(target: str, root: str = ROOT) -> RunFolder:
    """The run that `target` means, unfinished or not: a run's id, else the last one of a loop.

    One that has not ended comes first. Raises UserError.
    """
    from . import locks

    unfinished = locks.unfinished(root)
    ended = list(runs_in(root, HISTORY))
    for run in (*unfinished, *ended):
        if run.id == target:
            return run
    for run in (*unfinished, *ended):
        if is_run_of(run, target):
            return run
    from ...ir.diagnostics import suggest

    if not unfinished and not ended:
        raise UserError("unknown-run", f"no run of `{target}`: nothing was run here yet", HOW_TO_BEGIN)
    if is_loop(target, root):
        raise UserError("unknown-run", f"`{target}` was not run yet", f"run it with: llc run {target}")
    names = dict.fromkeys(name for run in (*unfinished, *ended) for name in (run.name, run.id))
    raise UserError("unknown-run", f"no run of `{target}`", suggest(target, names, "runs here"))


def is_loop(target: str, root: str = ROOT) -> bool:
    """Whether `target` is a loop's name, or a file's path."""
    return target in loop_files(root) or (is_path(target) and files.isfile(os.path.join(root, target)))


def is_run_of(run: RunFolder, target: str) -> bool:
    """Whether `target` is the program's name, or the name or path the run was started with."""
    about = run.about()
    if not about:
        return run.name == slug(target)
    path = str(about.get("path", ""))
    stem = os.path.splitext(os.path.basename(path))[0]
    return target in (about.get("program"), path, stem if path.startswith(LOOPS + os.path.sep) else None)
