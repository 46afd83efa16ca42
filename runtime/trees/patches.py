"""What an agent changed, as patches: the evidence by which its work is judged.

Owns which trees are compared: those that the journal names, as a resumed run has no others. Must not contain:
how a judge is asked (`models.judge`).
"""

from __future__ import annotations

from typing import Protocol

from ..host import secrets
from ..journal.events import EffectStarted, StateEnter, TreeTaken
from ..journal.reader import Damage, read
from ..journal.run_folder import RunFolder
from .tree import NoTree

# Characters of one patch; what is longer is cut by its reader.
_LONGEST = 64_000
# From which length on it begins with the list of files, and how long that may be.
_LISTED = 8_000


class Store(Protocol):
    """What is needed of a store of trees."""

    def diff(self, old: str, new: str, *options: str) -> bytes: ...


def patches(store: Store, folder: str, state: str | None, now: str) -> dict[str, str]:
    """`step`: what changed since the agent of `state` began; `before`: what the run had changed by then.

    folder: of the run. now: the tree of the present files. Raises NoTree.
    """
    first, begun = _trees(RunFolder("", folder), state)
    if begun is None or first is None:
        raise NoTree("there is no tree of the files before the agent began")
    found = {"step": _patch(store, begun, now)}
    if first != begun:
        found["before"] = _patch(store, first, begun)
    return found


def _trees(run: RunFolder, state: str | None) -> tuple[str | None, str | None]:
    """The first tree of the run, and the one before the agent of the last visit to a state began."""
    first = begun = None
    agent: int | None = None
    for event in read(run.journal):
        if isinstance(event, Damage):
            continue
        if isinstance(event, StateEnter) and event.shown_state == state:
            agent = begun = None
        elif isinstance(event, EffectStarted) and event.kind == "agent" and event.state == state:
            agent = event.seq if agent is None else agent
        elif isinstance(event, TreeTaken) and event.tree is not None:
            first = first or event.tree
            if event.seq == agent and event.when == "before":
                begun = begun or event.tree
    return first, begun


def _patch(store: Store, old: str, new: str) -> str:
    """A patch, with the list of files first where it is long."""
    if old == new:
        return ""
    patch = store.diff(old, new).decode("utf-8", "replace")
    if len(patch) > _LISTED:
        listed = store.diff(old, new, "--stat").decode("utf-8", "replace")
        patch = f"{listed[:_LISTED]}\n{patch}"
    return secrets.masked(patch[:_LONGEST])
