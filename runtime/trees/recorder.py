"""Recorder of trees: takes a tree before and after each effect that may change files; creates journal events.

Owns the rules of `record_files` and the handling of concurrent effects. The stores are imported with the
first tree, because most runs need none.
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

# Seconds for which the next effect can reuse a tree.
_REUSE_TIME = 0.05
# Maximum number of changes in an event.
MAX_CHANGES = 200
FOLDER = "trees"


class TreeRecorder:
    """Takes the trees of one run.

    mode: one of `ir.effects.RECORD_FILES`. are_tasks_agents: whether tasks run by an agent by default.
    """

    def __init__(self, mode: str = "agents", are_tasks_agents: bool = False) -> None:
        self._mode = mode
        self._are_tasks_agents = are_tasks_agents
        # None until the first effect that may change files.
        self._is_active: bool | None = None
        self._store: Any = None
        self._problem: str | None = None
        # Held while a tree is taken.
        self._lock = threads.Lock()
        # Held while `_concurrent` changes.
        self._concurrent_lock = threads.Lock()
        self._taken: TreeTaken | None = None
        self._reusable_until = 0.0
        # The effect whose guard has already taken the tree after it.
        self._guarded: int | None = None
        # Running effects, each with the effects that have run concurrently.
        self._concurrent: dict[int, set[int]] = {}

    def close(self) -> None:
        """Release nothing; required of each part of a world."""

    def wants(self, kind: str, args: dict[str, Any], context: Context) -> bool:
        """Whether to take trees before and after this effect."""
        if args.get("guard") and context.folder is not None:
            self._is_active = True
            return True
        if self._mode == "off" or context.folder is None or not EFFECTS[kind].changes_files:
            return False
        if self._is_active is None:
            # A resumed run that has recorded trees continues to record them.
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
        """Perform an effect and take the trees before and after it, even if it is interrupted.

        perform: receives the id of the tree before the effect, None if there is none.
        """
        seq = context.seq
        with self._concurrent_lock:
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
            with self._concurrent_lock:
                del self._concurrent[seq]

    def guarded(
        self, spec: dict[str, Any], context: Context, tree: str | None, perform: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Perform an effect with guarded paths; the result has `error` if the guard fails.

        spec: `paths` and `on` of the loop's `guard`. tree: the tree before the effect.
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
            differences = guard.changed(self._store, before, now, spec["paths"], ROOT)
            if differences and spec["on"] == "revert":
                guard.restore(self._store, differences)
        except guard.NoTree as error:
            message = f"the agent's changes to guarded paths could not be undone: {error}"
            return {**result, "error": _error(message)}
        guard.delete_baseline(folder, seq)
        if not differences:
            self._guarded = seq
            return result
        changes = [[one.letter, guard.text_of(one.path)] for one in differences[:MAX_CHANGES]]
        event = Guarded(seq=seq, on=spec["on"], changes=changes, changed=len(differences))
        if context.on_event is not None:
            context.on_event(event)
        if spec["on"] == "revert":
            return result
        names = ", ".join(path for _, path in changes[:5]) + (" …" if len(differences) > 5 else "")
        return {**result, "error": _error(f"the agent changed guarded paths: {names}")}

    def changes(self, context: Context) -> dict[str, str]:
        """Patches of the last `step` of the state's agent and of the changes `before` it; see `patches`.

        If there are none, the result has `missing`, the reason.
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
                result: dict[str, str] = patches.patches(store, context.folder, context.state, now)
            except Exception as error:
                return {"missing": f"{error}" or type(error).__name__}
        return result

    def _take(self, when: str, seq: int, context: Context) -> None:
        if context.on_event is None:
            return
        with self._lock:
            taken = self._taken
            if when == "before" and taken is not None and clock.monotonic() < self._reusable_until:
                event = TreeTaken(seq=seq, when=when, store=taken.store, tree=taken.tree, duration_ms=0)
            else:
                event = self._taken = self._take_tree(when, seq, context)
                self._reusable_until = clock.monotonic() + _REUSE_TIME
            context.on_event(event)

    def _take_tree(self, when: str, seq: int, context: Context) -> TreeTaken:
        started_at = clock.monotonic()
        tree = None
        try:
            if self._problem is None:
                tree = self._open(context).take()
        except Exception as error:
            # The effect is performed even if no tree can be taken.
            self._problem = f"{error}" or type(error).__name__
        duration = round((clock.monotonic() - started_at) * 1000)
        if tree is None:
            return TreeTaken(
                seq=seq, when=when, store="", tree=None, reason=self._problem, duration_ms=duration
            )
        changes: Any = ABSENT
        is_after = when == "after"
        if is_after and tree.changes is not None:
            changes = [[change.letter, change.path] for change in tree.changes[:MAX_CHANGES]]
        return TreeTaken(
            seq=seq,
            when=when,
            store=tree.store,
            tree=tree.id,
            changes=changes,
            changed=ABSENT if changes is ABSENT else len(tree.changes or ()),
            concurrent=(is_after and sorted(self._concurrent[seq])) or ABSENT,
            runs=(is_after and self._other_runs(context)) or ABSENT,
            left_out=[list(entry) for entry in tree.left_out[:MAX_CHANGES]] or ABSENT,
            duration_ms=duration,
        )

    def _open(self, context: Context) -> Any:
        if self._store is None:
            assert context.folder is not None
            module = import_module(f"{__package__}.stores")
            self._store = module.open_store(os.path.join(context.folder, FOLDER), ROOT)
        return self._store

    def _other_runs(self, context: Context) -> list[str]:
        """Other active runs in the project; the trees also contain their changes."""
        locks = import_module(f"{__package__.rpartition('.')[0]}.runs.locks")
        return [run.id for run in locks.unfinished(ROOT) if run.id != context.run_id and locks.is_live(run)]


def _error(message: str) -> dict[str, str]:
    return {"kind": "guard", "message": message}
