"""`llc diff`: the files that a run, or one of its steps, changed.

A view of the trees that the journal names (`runtime.trees`). What a pipe gets is a patch byte by byte; a
terminal gets it without control characters, coloured, through the user's pager.
"""

from __future__ import annotations

import contextlib
import os.path
import sys
from collections.abc import Iterator
from typing import Any

from ...ir.light_records import LightRecord
from ..host import environment, files, processes, secrets
from ..host.errors import EXIT_OK, UserError
from ..host.paths import HISTORY, ROOT
from ..host.screen import Screen, printable
from ..journal.events import EffectFinished, EffectStarted, StateEnter, TreeTaken
from ..journal.run_folder import RunFolder
from ..runs.follower import Follower
from ..runs.locks import unfinished
from ..runs.lookup import find_run_folder
from ..runs.runs import HOW_TO_BEGIN, runs_in
from ..trees.git_trees import present_tree
from ..trees.recorder import FOLDER
from ..trees.stores import open_recorded, unpack
from ..trees.tree import GIT, NoTree

# Styles of lines by their beginnings; the first one counts.
_STYLES = (
    *(("diff ", "bold"), ("index ", "bold"), ("--- ", "bold"), ("+++ ", "bold"), ("@@", "dim")),
    *(("+", "green"), ("-", "red")),
)
_HELP = (
    "trees are recorded from a run's first agent on; "
    "with `record_files: all` in .loops/config.yaml, in every run"
)


class Step(LightRecord):
    """One effect with the trees around it. reason: why a tree is missing."""

    seq: int
    state: str | None
    iteration: int
    kind: str = ""
    is_finished: bool = False
    before: TreeTaken | None = None
    after: TreeTaken | None = None
    # Places of these events in the journal: effects at the same time take their trees in any order.
    before_at: int = 0
    after_at: int = 0

    @property
    def trees(self) -> Iterator[tuple[int, TreeTaken]]:
        for at, event in ((self.before_at, self.before), (self.after_at, self.after)):
            if event is not None and event.tree is not None:
                yield at, event

    @property
    def name(self) -> str:
        return f"effect {self.seq}" + (f" ({self.state})" if self.state else "")


def last_run() -> RunFolder:
    """The run that began last. Raises UserError."""
    found = [*unfinished(ROOT), *runs_in(ROOT, HISTORY)]
    if not found:
        raise UserError("unknown-run", "nothing was run here yet", HOW_TO_BEGIN)
    return max(found, key=lambda run: run.id[-20:])


def steps_of(run: RunFolder) -> dict[int, Step]:
    """The effects of a run by number, with their trees. Raises UserError."""
    steps: dict[int, Step] = {}
    state, iteration = None, 0
    with contextlib.closing(Follower(run)) as follower:
        for at, event in enumerate(follower.events()):
            if isinstance(event, StateEnter):
                state, iteration = event.shown_state, event.iteration
            elif isinstance(event, EffectStarted):
                step = steps.setdefault(event.seq, Step(event.seq, event.state or state, iteration))
                step.kind = event.kind
            elif isinstance(event, TreeTaken) and event.seq in steps:
                step = steps[event.seq]
                if event.when == "after":
                    step.after, step.after_at = event, at
                elif step.before is None or step.before.tree is None:
                    # Of an effect that was performed again, the first one.
                    step.before, step.before_at = event, at
            elif isinstance(event, EffectFinished) and event.seq in steps:
                steps[event.seq].is_finished = True
    return steps


def chosen(steps: dict[int, Step], word: str | None, run: RunFolder) -> list[Step]:
    """The steps that a word names: an effect's number, iN for an iteration, or a state, whose last one it is.

    Raises UserError.
    """
    if word is None:
        return list(steps.values())
    number = word.removeprefix("#")
    if number.isdecimal() and int(number) in steps:
        return [steps[int(number)]]
    if word[:1] == "i" and word[1:].isdecimal():
        found = [step for step in steps.values() if step.iteration == int(word[1:])]
        if found:
            return found
    of_state = [step for step in steps.values() if step.state == word]
    with_trees = [step for step in of_state if step.before is not None]
    if of_state:
        return (with_trees or of_state)[-1:]
    states = "; states: " + ", ".join(dict.fromkeys(step.state for step in steps.values() if step.state))
    raise UserError(
        "no-such-point",
        f"there is no effect, iteration or state `{word}` in {run.id}",
        f"it has {len(steps)} effects; `i3` is the third iteration{states}",
    )


def states_with_trees(target: str) -> list[str]:
    """The states of a run whose steps can be shown, for completion."""
    try:
        steps = steps_of(find_run_folder(target))
    except UserError:
        return []
    return list(dict.fromkeys(step.state for step in steps.values() if step.state and any(step.trees)))


class Changes:
    """The difference between the first and the last tree of some steps. Raises UserError."""

    def __init__(self, run: RunFolder, word: str | None) -> None:
        self.run = run
        steps = steps_of(run)
        self._last_seq = max(steps, default=0)
        self.steps = chosen(steps, word, run)
        self.what = self.steps[0].name if word is not None and len(self.steps) == 1 else f"run {run.id}"
        at_each = dict(tree for step in self.steps for tree in step.trees)
        taken = [at_each[at] for at in sorted(at_each)]
        if not taken:
            self._refuse()
        self.first, self.last = taken[0], taken[-1]
        self.new = str(self.last.tree)
        self._scratch = ""
        if self.first.store != self.last.store:
            raise UserError("no-tree", "the trees are of different kinds: the project became a repository")
        try:
            path = os.path.join(run.path, FOLDER)
            is_elsewhere = unpack(run.path, self.first.store, self.new)
            self.store = open_recorded(path, self.first.store)
            if self._is_unfinished and self.first.store == GIT and not is_elsewhere:
                # What an effect has changed so far: the files as they are now.
                self._scratch = os.path.join(path, f"now-{processes.getpid()}")
                self.store, self.new = present_tree(path, self._scratch, ROOT)
        except NoTree as error:
            self.close()
            raise self._lost(error) from None

    @property
    def _is_unfinished(self) -> bool:
        """Whether the last step with trees has not ended, and nothing came after it."""
        last = [step for step in self.steps if step.before is not None][-1]
        return not last.is_finished and last.after is None and last.seq == self._last_seq

    def close(self) -> None:
        """Remove what was made for the comparison."""
        if self._scratch:
            files.rmtree(self._scratch, ignore_errors=True)

    def _refuse(self) -> None:
        reasons = [
            event.reason
            for step in self.steps
            for event in (step.before, step.after)
            if event is not None and event.reason
        ]
        if reasons:
            raise UserError("no-tree", f"no tree of {self.what} could be recorded: {reasons[0]}")
        raise UserError("no-tree", f"no trees were recorded for {self.what}", _HELP)

    def _lost(self, error: NoTree) -> UserError:
        return UserError(
            "no-tree",
            f"the trees of {self.what} cannot be read: {error}",
            f"they are in {os.path.join(self.run.path, FOLDER)}",
        )

    def text(self, *options: str) -> bytes:
        """As `git diff` prints it."""
        assert self.first.tree is not None
        try:
            return self.store.diff(self.first.tree, self.new, *options)
        except NoTree as error:
            raise self._lost(error) from None

    def notes(self) -> Iterator[str]:
        """What a reader must know: other effects or runs at the same time, content that is not recorded."""
        own = {step.seq for step in self.steps}
        events = [event for step in self.steps for event in (step.before, step.after) if event is not None]
        concurrent = sorted({seq for event in events for seq in event.concurrent or () if seq not in own})
        if concurrent:
            yield f"performed at the same time, changes included: effects {', '.join(map(str, concurrent))}"
        runs = sorted({str(run) for event in events for run in event.runs or ()})
        if runs:
            yield f"active at the same time, changes included: {', '.join(runs)}"
        left_out = sorted({str(entry[0]) for event in events for entry in event.left_out or () if entry})
        if left_out:
            more = f" and {len(left_out) - 5} more" if len(left_out) > 5 else ""
            yield f"content not recorded: {', '.join(left_out[:5])}{more}"
        if any(step.before is not None and step.after is None for step in self.steps):
            is_now = "the files are compared as they are now"
            yield f"a step has not ended; {is_now if self._scratch else 'its changes are not recorded'}"

    def to_json(self) -> dict[str, Any]:
        """The changes as plain data: files with counts of lines, null for binary files, and the patch."""
        found = []
        counts = {}
        fields = self.text("--numstat", "-z").split(b"\0")
        while len(fields) > 1:
            added, removed, path = fields.pop(0).split(b"\t", 2)
            if not path:  # renamed: the old and the new path follow
                path = fields[1]
                del fields[:2]
            counts[path] = [int(n) if n.isdigit() else None for n in (added, removed)]
        fields = self.text("--name-status", "-z").split(b"\0")
        while len(fields) > 1:
            letter = fields.pop(0).decode("ascii", "replace")
            old = fields.pop(0) if letter[:1] in "RC" else None
            path = fields.pop(0)
            added_removed = counts.get(path, [None, None])
            entry = {"status": letter[:1], "path": _text(path), "added": added_removed[0]}
            entry["removed"] = added_removed[1]
            if old is not None:
                entry["from"] = _text(old)
            found.append(entry)
        return {
            "run": self.run.id,
            "effects": [step.seq for step in self.steps],
            "store": self.first.store,
            "before": self.first.tree,
            "after": self.new,
            "files": found,
            "notes": list(self.notes()),
            "patch": _text(self.text()),
        }


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


# --- showing --------------------------------------------------------------------------------------


def show(changes: Changes, form: str) -> int:
    """Write the changes in a form: `patch`, `stat` or `names`; the exit code."""
    screen = Screen(sys.stdout)
    options = {"stat": ("--stat", f"--stat-width={screen.width}"), "names": ("--name-only",)}.get(form, ())
    content = changes.text(*options)
    errors = Screen(sys.stderr)
    for note in changes.notes():
        errors.write(f"note: {printable(note)}\n")
    if not content:
        errors.write(f"{changes.what} changed no files\n")
    elif screen.is_terminal or screen.color:
        _page(screen, "".join(_painted(screen, form, line) for line in _text(content).split("\n")[:-1]))
    else:
        screen.deliver(_masked_bytes(content))
    return EXIT_OK


def _painted(screen: Screen, form: str, line: str) -> str:
    shown = printable(secrets.masked(line))
    style = next((style for head, style in _STYLES if line.startswith(head)), "") if form == "patch" else ""
    return screen.paint(shown, style) + "\n"


def _masked_bytes(content: bytes) -> bytes:
    """A patch with secrets masked; a pipe gets all other bytes unchanged."""
    for secret in secrets.known.in_bytes:
        content = content.replace(secret, secrets.MASK.encode())
    return content


def _page(screen: Screen, text: str) -> None:
    """Show a text through the user's pager, as git does; directly without one, or if it fits."""
    environ = environment.environ
    pager = environ.get("GIT_PAGER", environ.get("PAGER", "less"))
    if not screen.is_live or pager in ("", "cat") or environment.which(pager.split()[0]) is None:
        screen.write(text)
        return
    env = {"LESS": "FRX", "LV": "-c", **environ}
    child = processes.Popen(("sh", "-c", pager), stdin=processes.PIPE, env=env)
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        child.communicate(text.encode("utf-8", "replace"))
    while True:
        try:
            child.wait()
            return
        except KeyboardInterrupt:  # it belongs to the pager
            continue
