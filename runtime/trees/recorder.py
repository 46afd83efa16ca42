"""When trees are taken: before and after each effect that may change files; and their journal events.

Owns the rule of `record_files`, and the order with effects that are performed at the same time. The stores
are loaded with the first tree, because most runs need none.
"""

from __future__ import annotations

import os.path

from ...ir.effects import EFFECTS
from ...ir.python_internals import import_module
from ..host import clock, files, threads
from ..host.effect_context import Context
from ..host.paths import ROOT
from ..journal.events import ABSENT, Guarded, TreeTaken

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Seconds for which a tree is that of the next effect too.
_FRESH = 0.05
# Changes that an event names at most.
MOST_CHANGES = 200
FOLDER = "trees"


class TreeRecorder:
    """Takes the trees of one run.

    mode: of `ir.effects.RECORD_FILES`. are_tasks_agents: whether an agent performs tasks that do not say who.
    """

    def __init__(self, mode: str = "agents", are_tasks_agents: bool = False) -> None:
        self._mode = mode
        self._are_tasks_agents = are_tasks_agents
        # None until the first effect that may change files.
        self._is_active: bool | None = None
        self._store: Any = None
        self._problem: str | None = None
        # Held while a tree is taken, and while `_concurrent` changes.
        self._lock = threads.Lock()
        self._names = threads.Lock()
        self._taken: TreeTaken | None = None
        self._fresh_until = 0.0
        # The effect whose last tree its guard has taken.
        self._guarded: int | None = None
        # Effects that are performed now, each with those performed at the same time.
        self._concurrent: dict[int, set[int]] = {}

    def close(self) -> None:
        """There is nothing to close: it is a part of a world."""

    def wants(self, kind: str, args: dict[str, Any], context: Context) -> bool:
        """Whether trees are taken around this effect."""
        if args.get("guard") and context.folder is not None:
            self._is_active = True
            return True
        if self._mode == "off" or context.folder is None or not EFFECTS[kind].changes_files:
            return False
        if self._is_active is None:
            # A resumed run continues with what it recorded before.
            self._is_active = self._mode == "all" or files.exists(os.path.join(context.folder, FOLDER))
        self._is_active = self._is_active or self._is_agent(kind, args)
        return self._is_active

    def _is_agent(self, kind: str, args: dict[str, Any]) -> bool:
        """Whether an agent performs the effect."""
        if kind == "tool":
            return str(args.get("name")).startswith("aider:")
        if kind == "task":
            runner = (args.get("definition") or {}).get("runner")
            return self._are_tasks_agents if runner is None else runner == "agent"
        return kind == "agent"

    def around(self, context: Context, perform: Callable[[str | None], dict[str, Any]]) -> dict[str, Any]:
        """Perform an effect; its trees are taken and recorded, also where it is interrupted.

        perform: takes the id of the tree before, None where there is none.
        """
        seq = context.seq
        with self._names:
            for others in self._concurrent.values():
                others.add(seq)
            self._concurrent[seq] = set(self._concurrent)
        self._take("before", seq, context)
        try:
            return perform(None if self._taken is None else self._taken.tree)
        finally:
            if self._guarded != seq:
                self._take("after", seq, context)
            self._guarded = None
            with self._names:
                del self._concurrent[seq]

    def guarded(
        self, given: dict[str, Any], context: Context, tree: str | None, perform: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Perform an effect during which paths are guarded; its result, with an error where that fails.

        given: `paths` and `on` of the loop's `guard`. tree: the one before.
        """
        guard = import_module(f"{__package__}.guard")
        if tree is None or context.folder is None:
            message = f"the agent was not started: its paths cannot be guarded: {self._problem}"
            result = {"output": "", "stderr": message, "exit_code": 1, "duration_ms": 0}
            return {**result, "elapsed_ms": context.elapsed_ms(), "error": _error(message)}
        folder, seq = os.path.join(context.folder, FOLDER), context.seq
        before = guard.baseline(folder, seq, tree)
        result = perform()
        self._take("after", seq, context)
        now = self._taken.tree if self._taken is not None else None
        try:
            if now is None:
                raise guard.NoTree(self._problem)
            found = guard.changed(self._store, before, now, given["paths"], ROOT)
            if found and given["on"] == "revert":
                guard.restore(self._store, found)
        except guard.NoTree as error:
            return {
                **result,
                "error": _error(f"what the agent changed of guarded paths is not undone: {error}"),
            }
        guard.forget(folder, seq)
        if not found:
            self._guarded = seq
            return result
        changes = [[one.letter, guard.text_of(one.path)] for one in found[:MOST_CHANGES]]
        event = Guarded(seq=seq, on=given["on"], changes=changes, changed=len(found))
        if context.on_event is not None:
            context.on_event(event)
        if given["on"] == "revert":
            return result
        names = ", ".join(path for _, path in changes[:5]) + (" …" if len(found) > 5 else "")
        return {**result, "error": _error(f"the agent changed guarded paths: {names}")}

    def changes(self, context: Context) -> dict[str, str]:
        """Patches: what the last `step` of the state's agent changed, and what the run had changed `before`.

        `missing`: why there is none.
        """
        if self._problem is not None:
            return {"missing": self._problem}
        if context.folder is None or not files.exists(os.path.join(context.folder, FOLDER)):
            return {"missing": "the files of the project are not recorded"}
        patches = import_module(f"{__package__}.patches")
        with self._lock:
            try:
                store = self._open(context)
                now = (self._taken and self._taken.tree) or store.take().id
                found: dict[str, str] = patches.patches(store, context.folder, context.state, now)
            except Exception as error:
                return {"missing": f"{error}" or type(error).__name__}
        return found

    def _take(self, when: str, seq: int, context: Context) -> None:
        if context.on_event is None:
            return
        with self._lock:
            taken = self._taken
            if when == "before" and taken is not None and clock.monotonic() < self._fresh_until:
                event = TreeTaken(seq=seq, when=when, store=taken.store, tree=taken.tree, duration_ms=0)
            else:
                event = self._taken = self._event(when, seq, context)
                self._fresh_until = clock.monotonic() + _FRESH
            context.on_event(event)

    def _event(self, when: str, seq: int, context: Context) -> TreeTaken:
        begun = clock.monotonic()
        tree = None
        try:
            if self._problem is None:
                tree = self._open(context).take()
        except Exception as error:
            # Whatever is wrong with the files or with git, the effect is performed.
            self._problem = f"{error}" or type(error).__name__
        took = round((clock.monotonic() - begun) * 1000)
        if tree is None:
            return TreeTaken(seq=seq, when=when, store="", tree=None, reason=self._problem, duration_ms=took)
        changes: Any = ABSENT
        is_after = when == "after"
        if is_after and tree.changes is not None:
            changes = [[change.letter, change.path] for change in tree.changes[:MOST_CHANGES]]
        return TreeTaken(
            seq=seq,
            when=when,
            store=tree.store,
            tree=tree.id,
            changes=changes,
            changed=ABSENT if changes is ABSENT else len(tree.changes or ()),
            concurrent=(is_after and sorted(self._concurrent[seq])) or ABSENT,
            runs=(is_after and self._other_runs(context)) or ABSENT,
            left_out=[list(entry) for entry in tree.left_out[:MOST_CHANGES]] or ABSENT,
            duration_ms=took,
        )

    def _open(self, context: Context) -> Any:
        if self._store is None:
            assert context.folder is not None
            module = import_module(f"{__package__}.stores")
            self._store = module.open_store(os.path.join(context.folder, FOLDER), ROOT)
        return self._store

    def _other_runs(self, context: Context) -> list[str]:
        """Other runs that are active in the project, whose changes are in the trees too."""
        locks = import_module(f"{__package__.rpartition('.')[0]}.runs.locks")
        return [run.id for run in locks.unfinished(ROOT) if run.id != context.run_id and locks.is_live(run)]


def _error(message: str) -> dict[str, str]:
    return {"kind": "guard", "message": message}
