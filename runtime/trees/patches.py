"""Patches of an agent's changes: the evidence for the judge of its work.

Owns the selection of the compared trees, which the journal names, because a resumed run has no other record
of them. Must not contain: the call of the judge (`models.judge`).
"""

from __future__ import annotations

from typing import Protocol

from ..host import secrets
from ..journal.events import EffectStarted, StateEnter, TreeTaken
from ..journal.reader import Damage, read
from ..journal.run_folder import RunFolder
from .tree import NoTree

# Maximum number of characters of one patch; the reader truncates it further.
_MAX_PATCH = 64_000
# A longer patch starts with the list of files, which has at most this many characters.
_MAX_STAT = 8_000


class Store(Protocol):
    """The required part of a store of trees."""

    def diff(self, old: str, new: str, *options: str) -> bytes: ...


def patches(store: Store, folder: str, state: str | None, now: str) -> dict[str, str]:
    """`step`: the changes since the agent of `state` started; `before`: the earlier changes of the run.

    folder: folder of the run. now: tree of the current files. Raises NoTree.
    """
    first, before_agent = _trees(RunFolder("", folder), state)
    if before_agent is None or first is None:
        raise NoTree("there is no tree of the files before the agent began")
    patches = {"step": _patch(store, before_agent, now)}
    if first != before_agent:
        patches["before"] = _patch(store, first, before_agent)
    return patches


def _trees(run: RunFolder, state: str | None) -> tuple[str | None, str | None]:
    """The first tree of the run, and the tree before the agent of the last visit to a state started."""
    first = before_agent = None
    agent: int | None = None
    for event in read(run.journal):
        if isinstance(event, Damage):
            continue
        if isinstance(event, StateEnter) and event.shown_state == state:
            agent = before_agent = None
        elif isinstance(event, EffectStarted) and event.kind == "agent" and event.state == state:
            agent = event.seq if agent is None else agent
        elif isinstance(event, TreeTaken) and event.tree is not None:
            first = first or event.tree
            if event.seq == agent and event.when == "before":
                before_agent = before_agent or event.tree
    return first, before_agent


def _patch(store: Store, old: str, new: str) -> str:
    """The patch between two trees; a long patch starts with the list of files."""
    if old == new:
        return ""
    patch = store.diff(old, new).decode("utf-8", "replace")
    if len(patch) > _MAX_STAT:
        stat = store.diff(old, new, "--stat").decode("utf-8", "replace")
        patch = f"{stat[:_MAX_STAT]}\n{patch}"
    return secrets.masked(patch[:_MAX_PATCH])
