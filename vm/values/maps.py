"""The two representations of maps; no other module distinguishes them.

A map is a dict that is never changed, or a `MapVersion`. Host data, JSON and `map` create dicts; changing a
large map creates versions, so that building a map takes time proportional to the number of changes. Programs
cannot distinguish the representations.

Versions use rerooting (Baker, "Shallow binding makes functional arrays fast", 1991): the newest version owns
a dict that the next change updates in place; an older version stores its difference to the next newer
version. When an older version is read, it takes its own copy, once.

Must not contain: the semantics of map functions (`primitives.maps`).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias, TypeGuard

    Value = Any
    Entries = dict[str, Any]

Map: TypeAlias = "Entries | MapVersion"

# Copying a smaller map is faster than versioning it.
SHORT = 256
# If the merged entries are at least this fraction of the map, copying is faster than creating as many
# versions.
_PART = 32
# Old value of a key that the map did not have.
_NONE = object()


class MapVersion:
    """A map derived from another map by one change.

    Attributes:
        entries: the contents; None in an older version.
        left: number of further changes that may be made in place; `begin` starts with half the size of the
            map. An older version is therefore at most that many changes away from a dict, so that
            reading it costs no more than copying the map at the time of its change.
        undo: in an older version, the next newer version, the changed key, its old value and its old rank.
        ranks: the order of the keys as numbers, from the first removal on, so that a removed key can be
            restored to its position.
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
        """Change this version itself. The caller must hold the only reference, so there are no older
        versions.
        """
        self.read()[key] = value
        self.ranks = None

    def __repr__(self) -> str:
        return f"<map of {len(self)}>"

    def read(self) -> Entries:
        """The contents. The caller must not change or store them."""
        return self.restored() if self.entries is None else self.entries

    def restored(self) -> Entries:
        """Compute the contents of an older version, which owns them from now on."""
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
        # No changes left: the next change copies, so this version keeps its dict.
        self.entries, self.left, self.ranks, self.undo = entries, 0, ranks, None
        return entries


def is_map(value: Value) -> TypeGuard[Map]:
    return type(value) is dict or type(value) is MapVersion


def read(map: Map) -> Entries:
    """The entries of a map. The caller must not change or store them."""
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
        # Ranks decrease with each change, so the newest key comes last.
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
    """The entries of both maps; those of `other` take precedence."""
    entries, added = read(map), read(other)
    if not entries or not added:
        return map if entries else other
    if len(entries) < SHORT or len(added) * _PART > len(entries):
        return begin({**entries, **added})
    for key, value in added.items():
        map = put(map, key, value)
    return map
