"""The two forms of a map, and the only code that knows them apart.

A map is a dict that is never changed, or a `MapVersion`. Host data, JSON and `map` make dicts; changing a
map of some size makes versions, so that a map is built in time proportional to the changes. Programs
cannot tell the forms apart: they are equal, shown, stored and ordered alike.

The versions are rerooted (Baker, "Shallow binding makes functional arrays fast", 1991): the newest owns
a dict, which a further change alters in place; an older version holds what differs from the next newer
one. One that is read takes a copy of its own, once, and keeps it from then on.

Must not contain: what a map function means to a program (`primitives.maps`).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias, TypeGuard

    Value = Any
    Entries = dict[str, Any]

Map: TypeAlias = "Entries | MapVersion"

# A smaller map is copied quicker than it is versioned.
SHORT = 256
# From this part of a map on, merging entries into it copies it, which is quicker than as many versions.
_PART = 32
# The old value of a key that a map did not have.
_NONE = object()


class MapVersion:
    """A map that is made of another by a change.

    entries: what it holds, None in an older version. left: how many changes may follow in place. An older
    version is at most that many changes away from a dict, and `begin` starts with half the size of the
    map: so reading it costs no more than copying it when it was changed, and copies cost as much as changes.
    undo: in an older version the next newer one, the key that differs, its value here and its rank.
    ranks: numbers that give the order of the keys, from the first removal on, so that a removed
    key gets its place back.
    """

    __slots__ = ("entries", "left", "ranks", "undo")

    def __init__(self, entries: Entries, left: int, ranks: dict[str, int] | None = None) -> None:
        self.entries: Entries | None = entries
        self.left = left
        self.ranks = ranks
        self.undo: tuple[MapVersion, str, Value, int | None] | None = None

    def __len__(self) -> int:
        return len(self.read())

    def __contains__(self, key: str) -> bool:
        return key in self.read()

    def get(self, key: str, default: Value = None) -> Value:
        return self.read().get(key, default)

    def __setitem__(self, key: str, value: Value) -> None:
        """Change this version itself, which nothing else may hold: so there are no older versions."""
        self.read()[key] = value
        self.ranks = None

    def __repr__(self) -> str:
        return f"<map of {len(self)}>"

    def read(self) -> Entries:
        """What it holds: to be read at once and neither changed nor kept."""
        return self.restored() if self.entries is None else self.entries

    def restored(self) -> Entries:
        """What an older version holds, which it owns from now on."""
        undone = []
        version = self
        while version.undo is not None:
            undone.append(version.undo)
            version = version.undo[0]
        assert version.entries is not None
        entries = version.entries.copy()
        ranks = None if version.ranks is None else version.ranks.copy()
        for _, key, value, rank in reversed(undone):
            if value is _NONE:
                del entries[key]
                if ranks is not None:
                    del ranks[key]
            else:
                entries[key] = value
                if ranks is not None and rank is not None:
                    ranks[key] = rank
        if ranks is not None and any(rank is not None for _, _, _, rank in undone):
            entries = {key: entries[key] for key in sorted(entries, key=ranks.__getitem__)}
        # With no changes left the next one copies, and this version keeps what it has.
        self.entries, self.left, self.ranks, self.undo = entries, 0, ranks, None
        return entries


def is_map(value: Value) -> TypeGuard[Map]:
    return type(value) is dict or type(value) is MapVersion


def read(map: Map) -> Entries:
    """The entries of a map: to be read at once and neither changed nor kept."""
    return map if isinstance(map, dict) else map.read()


def begin(entries: Entries) -> Map:
    """The map of a new dict."""
    return entries if len(entries) < SHORT else MapVersion(entries, len(entries) // 2)


def put(map: Map, key: str, value: Value) -> Map:
    if isinstance(map, dict):
        return begin({**map, key: value})
    entries = map.restored() if map.entries is None else map.entries
    if not map.left:
        return begin({**entries, key: value})
    old = entries.get(key, _NONE)
    entries[key] = value
    left = map.left - 1
    ranks = map.ranks
    if ranks is not None and old is _NONE:
        # It falls with each change, so the newest key comes last.
        ranks[key] = -left
    newer = MapVersion(entries, left, ranks)
    map.entries = map.ranks = None
    map.undo = newer, key, old, None
    return newer


def remove(map: Map, key: str) -> Map:
    entries = read(map)
    if key not in entries:
        return map
    if isinstance(map, dict) or not map.left or len(entries) <= SHORT:
        made = entries.copy()
        del made[key]
        return begin(made)
    ranks = map.ranks
    if ranks is None:
        ranks = dict(zip(entries, range(-map.left - len(entries), -map.left), strict=True))
    newer = MapVersion(entries, map.left - 1, ranks)
    map.entries = map.ranks = None
    map.undo = newer, key, entries.pop(key), ranks.pop(key)
    return newer


def merge(map: Map, other: Map) -> Map:
    """The entries of both; those of the other win."""
    entries, added = read(map), read(other)
    if not entries or not added:
        return map if entries else other
    if len(entries) < SHORT or len(added) * _PART > len(entries):
        return begin({**entries, **added})
    for key, value in added.items():
        map = put(map, key, value)
    return map
