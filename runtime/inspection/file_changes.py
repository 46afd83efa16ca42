"""`llc diff`: the files that a run, or one of its steps, changed.

A view of the trees that the journal names (`runtime.trees`). A pipe gets the patch byte for byte; a terminal
gets it without control characters, coloured, through the user's pager.
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
from ..trees.git_trees import current_tree
from ..trees.recorder import FOLDER
from ..trees.stores import open_recorded, unpack
from ..trees.tree import GIT, NoTree

# Styles of lines by prefix; the first match counts.
_STYLES = (
    *(("diff ", "bold"), ("index ", "bold"), ("--- ", "bold"), ("+++ ", "bold"), ("@@", "dim")),
    *(("+", "green"), ("-", "red")),
)
_HELP = (
    "trees are recorded from a run's first agent on; "
    "with `record_files: all` in .loops/config.yaml, in every run"
)


class Step(LightRecord):
    """One effect with the file trees recorded before and after it."""

    seq: int
    state: str | None
    iteration: int
    kind: str = ""
    is_finished: bool = False
    before: TreeTaken | None = None
    after: TreeTaken | None = None
    # Positions of these events in the journal: concurrent effects record their trees in any order.
    before_position: int = 0
    after_position: int = 0

    @property
    def trees(self) -> Iterator[tuple[int, TreeTaken]]:
        """The recorded trees, each with its position in the journal."""
        for position, event in ((self.before_position, self.before), (self.after_position, self.after)):
            if event is not None and event.tree is not None:
                yield position, event

    @property
    def name(self) -> str:
        return f"effect {self.seq}" + (f" ({self.state})" if self.state else "")


def last_run() -> RunFolder:
    """The run that started last. Raises UserError."""
    runs = [*unfinished(ROOT), *runs_in(ROOT, HISTORY)]
    if not runs:
        raise UserError("unknown-run", "this project has no runs yet", HOW_TO_BEGIN)
    return max(runs, key=lambda run: run.id[-20:])


def steps_of(run: RunFolder) -> dict[int, Step]:
    """The effects of a run by number, with their trees. Raises UserError."""
    steps: dict[int, Step] = {}
    state, iteration = None, 0
    with contextlib.closing(Follower(run)) as follower:
        for position, event in enumerate(follower.events()):
            if isinstance(event, StateEnter):
                state, iteration = event.shown_state, event.iteration
            elif isinstance(event, EffectStarted):
                step = steps.setdefault(event.seq, Step(event.seq, event.state or state, iteration))
                step.kind = event.kind
            elif isinstance(event, TreeTaken) and event.seq in steps:
                step = steps[event.seq]
                if event.when == "after":
                    step.after, step.after_position = event, position
                elif step.before is None or step.before.tree is None:
                    # If an effect was performed again, its first tree counts.
                    step.before, step.before_position = event, position
            elif isinstance(event, EffectFinished) and event.seq in steps:
                steps[event.seq].is_finished = True
    return steps


def select_steps(steps: dict[int, Step], word: str | None, run: RunFolder) -> list[Step]:
    """The steps that a word names: an effect by number, an iteration as iN, or the last step of a state.

    word: None for all steps. Raises UserError.
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
    """The states of a run that have recorded trees, for completion."""
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
        self.steps = select_steps(steps, word, run)
        self.subject = self.steps[0].name if word is not None and len(self.steps) == 1 else f"run {run.id}"
        by_position = dict(tree for step in self.steps for tree in step.trees)
        trees = [by_position[position] for position in sorted(by_position)]
        if not trees:
            self._refuse()
        self.first, self.last = trees[0], trees[-1]
        self.new = str(self.last.tree)
        self._scratch = ""
        if self.first.store != self.last.store:
            raise UserError("no-tree", "the trees are of different kinds: the project became a repository")
        try:
            path = os.path.join(run.path, FOLDER)
            is_elsewhere = unpack(run.path, self.first.store, self.new)
            self.store = open_recorded(path, self.first.store)
            if self._is_unfinished and self.first.store == GIT and not is_elsewhere:
                # The effect is still running: compare with the current files.
                self._scratch = os.path.join(path, f"now-{processes.getpid()}")
                self.store, self.new = current_tree(path, self._scratch, ROOT)
        except NoTree as error:
            self.close()
            raise self._lost(error) from None

    @property
    def _is_unfinished(self) -> bool:
        """Whether the last step with trees is unfinished, and is the last step of the run."""
        last = [step for step in self.steps if step.before is not None][-1]
        return not last.is_finished and last.after is None and last.seq == self._last_seq

    def close(self) -> None:
        """Remove the temporary files of the comparison."""
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
            raise UserError("no-tree", f"no tree of {self.subject} could be recorded: {reasons[0]}")
        raise UserError("no-tree", f"no trees were recorded for {self.subject}", _HELP)

    def _lost(self, error: NoTree) -> UserError:
        return UserError(
            "no-tree",
            f"the trees of {self.subject} cannot be read: {error}",
            f"they are in {os.path.join(self.run.path, FOLDER)}",
        )

    def text(self, *options: str) -> bytes:
        """The output of `git diff` with these options."""
        assert self.first.tree is not None
        try:
            return self.store.diff(self.first.tree, self.new, *options)
        except NoTree as error:
            raise self._lost(error) from None

    def notes(self) -> Iterator[str]:
        """Notes on the comparison: concurrent effects and runs, content that is not recorded."""
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
            compared = "the comparison uses the current files"
            yield f"a step has not ended; {compared if self._scratch else 'its changes are not recorded'}"

    def to_json(self) -> dict[str, Any]:
        """The changes as plain data: the patch, and the files with line counts (null for binary files)."""
        changed = []
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
            entry = {"status": letter[:1], "path": _decoded(path), "added": added_removed[0]}
            entry["removed"] = added_removed[1]
            if old is not None:
                entry["from"] = _decoded(old)
            changed.append(entry)
        return {
            "run": self.run.id,
            "effects": [step.seq for step in self.steps],
            "store": self.first.store,
            "before": self.first.tree,
            "after": self.new,
            "files": changed,
            "notes": list(self.notes()),
            "patch": _decoded(self.text()),
        }


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


# --- showing --------------------------------------------------------------------------------------


def show(changes: Changes, form: str) -> int:
    """Write the changes in a form: `patch`, `stat` or `names`; returns the exit code."""
    screen = Screen(sys.stdout)
    options = {"stat": ("--stat", f"--stat-width={screen.width}"), "names": ("--name-only",)}.get(form, ())
    content = changes.text(*options)
    errors = Screen(sys.stderr)
    for note in changes.notes():
        errors.write(f"note: {printable(note)}\n")
    if not content:
        errors.write(f"{changes.subject} changed no files\n")
    elif screen.is_terminal or screen.color:
        _page(screen, "".join(_painted(screen, form, line) for line in _decoded(content).split("\n")[:-1]))
    else:
        screen.deliver(_masked_bytes(content))
    return EXIT_OK


def _painted(screen: Screen, form: str, line: str) -> str:
    shown = printable(secrets.masked(line))
    style = next((style for head, style in _STYLES if line.startswith(head)), "") if form == "patch" else ""
    return screen.paint(shown, style) + "\n"


def _masked_bytes(content: bytes) -> bytes:
    """Mask secrets in a patch; all other bytes stay unchanged."""
    for secret in secrets.known.in_bytes:
        content = content.replace(secret, secrets.MASK.encode())
    return content


def _page(screen: Screen, text: str) -> None:
    """Show a text through the user's pager, as git does; directly if there is no pager or the text fits."""
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
        except KeyboardInterrupt:  # the pager handles Ctrl-C
            continue
