"""Memory of a project: the first index, an update after no change or one change, and searches."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from time import perf_counter

from measure import take_turns
from place import Place
from report import BYTES, Section, row
from sizes import Sizes

from llc.runtime.memory.ignore import list_files
from llc.runtime.memory.recall import read_request, recall

_WORDS = """
parse read write open close make find load save list check build format render handle request config
token index journal snapshot effect state lock session user path name value error result driver machine
"""
_PARTS = _WORDS.split()


def section(place: Place, sizes: Sizes) -> Section:
    found = Section(
        name="context",
        title=f"Memory: {sizes.files:,} files",
        about=(
            "A repository of files of 2 to 8 KB that resemble programs. An update lists the files (by "
            "git), reads the metadata of each file and the content of changed files; it is part of every "
            "search. The peer of an update is `git status` of the same repository."
        ),
    )
    root = place.inside("project")
    size = _project(root, sizes.files)
    loops_folder = os.path.join(root, ".loops")

    def first() -> float:
        shutil.rmtree(loops_folder, ignore_errors=True)
        return _seconds(root, "")

    contents = take_turns({"first": first}, sizes.index_rounds)
    found.add(row(f"first index, {size / 1e6:.1f} MB", contents["first"]))
    kept = sum(item.stat().st_size for item in os.scandir(os.path.join(loops_folder, ".cache")))
    found.add(row("size of the index on disk", [float(kept)], BYTES))

    def changed() -> float:
        with open(os.path.join(root, "src", "m0", "f0.py"), "a") as file:
            file.write("changed = True\n")
        return _seconds(root, "")

    def status() -> float:
        started_at = perf_counter()
        subprocess.run(["git", "status", "--short"], cwd=root, stdout=subprocess.DEVNULL, check=True)
        return perf_counter() - started_at

    def listing() -> float:
        started_at = perf_counter()
        list_files(root, lambda: None)
        return perf_counter() - started_at

    turns = take_turns(
        {
            "status": status,
            "listing": listing,
            "same": lambda: _seconds(root, ""),
            "changed": changed,
            "words": lambda: _seconds(root, "where is the journal parsed"),
            "metadata": lambda: _seconds(root, "journal parser", "metadata"),
            "long": lambda: _seconds(root, " ".join(_PARTS * 2000)),
        },
        sizes.search_rounds,
    )
    peer = ("`git status`", turns["status"])
    found.add(
        row("listing the files", turns["listing"], peer=peer),
        row("update, nothing changed", turns["same"], peer=peer),
        row("update, one file changed", turns["changed"], peer=peer),
        row("update and search, five words", turns["words"]),
        row("update and search of metadata, two words", turns["metadata"]),
        row("update and search, 0.4 MB of words", turns["long"]),
    )
    return found


def _seconds(root: str, query: str, strategy: str = "content") -> float:
    started_at = perf_counter()
    recall(root, read_request({"query": query, "matching_strategy": strategy}), lambda: None)
    return perf_counter() - started_at


def _project(root: str, files: int) -> int:
    """Create a repository with the given number of files; return their size in bytes."""
    chance = random.Random(7)
    size = 0
    for number in range(files):
        path = os.path.join(root, "src", f"m{number % 97}", f"f{number}.py")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        text = "".join(_function(chance) for _ in range(chance.randrange(10, 40)))
        with open(path, "w") as file:
            file.write(
                f'"""Module {number}: {chance.choice(_PARTS)} the {chance.choice(_PARTS)}."""\n\n{text}'
            )
        # Old enough for its time stamp to be relied on.
        os.utime(path, (1_700_000_000, 1_700_000_000))
        size += len(text)
    subprocess.run(["git", "init", "-q", root], check=True)
    subprocess.run(["git", "add", "."], cwd=root, check=True)
    return size


def _function(chance: random.Random) -> str:
    name, other = ("_".join(chance.sample(_PARTS, 2)) for _ in range(2))
    number = chance.randrange(1_000_000)
    return (
        f"def {name}_{number % 5000}({chance.choice(_PARTS)}, {chance.choice(_PARTS)}=None):\n"
        f"    # {' '.join(chance.sample(_PARTS, 6))}\n"
        f"    result{number} = {other}({chance.choice(_PARTS).title()}{chance.choice(_PARTS)}({number}))\n"
        f"    return result{number}\n\n\n"
    )
