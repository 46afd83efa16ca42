"""The two forms of a map: versions share a dict, and no program can observe it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from flow_runs import machine_of
from hypothesis import given
from hypothesis import strategies as st
from tiers import LAWS, assert_tiers_agree, outcome_data

from llc.vm.jit.codegen import inline
from llc.vm.primitives.handlers import HANDLERS
from llc.vm.tiered import Machine
from llc.vm.values import maps
from llc.vm.values.heap import HeapReader, HeapWriter
from llc.vm.values.text_form import json_text, written
from llc.vm.values.values import equal, show, to_host, type_name

# Minimum size of a versioned map in these tests.
MIN_VERSIONED = 32


@pytest.fixture(autouse=True, scope="module")
def versions_of_small_maps() -> Iterator[None]:
    """Lower the size from which maps are versioned."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maps, "SHORT", MIN_VERSIONED)
        patch.setattr(inline, "SHORT", MIN_VERSIONED)
        yield


CHANCE = st.integers(0, 1 << 32).map(random.Random)


def copy_and_change(name: str, *operands: Any) -> dict[str, Any]:
    """Change a copy of a dict."""
    original, *arguments = operands
    match name:
        case "put":
            return {**original, arguments[0]: arguments[1]}
        case "remove":
            return {key: value for key, value in original.items() if key != arguments[0]}
        case _:
            return {**original, **arguments[0]}


def random_maps(chance: random.Random, count: int, size: int = 40) -> list[tuple[Any, dict[str, Any]]]:
    """Maps derived from one another, each with an equal dict; old maps are changed and read too."""
    names = [f"k{number}" for number in range(size + 10)]
    start = dict.fromkeys(names[:size], 0)
    results: list[tuple[Any, dict[str, Any]]] = [(start, start)]
    for number in range(count):
        map_, dict_ = results[-1] if chance.random() < 0.7 else chance.choice(results)
        name = chance.choice(names)
        match chance.randrange(10):
            case 0 | 1 | 2 | 3 | 4:
                step: tuple[Any, ...] = "put", name, number
            case 5 | 6:
                step = "remove", name
            case 7:
                other, other_dict = chance.choice(results)
                results.append((HANDLERS["merge"](map_, other), copy_and_change("merge", dict_, other_dict)))
                continue
            case 8:
                step = "merge", {name: number}
            case _:
                assert list(HANDLERS["entries"](map_)) == list(dict_.items())
                continue
        results.append((HANDLERS[step[0]](map_, *step[1:]), copy_and_change(step[0], dict_, *step[1:])))
    return results


@given(CHANCE)
def test_versions_agree_with_copies(chance: random.Random) -> None:
    """Entries and their order, after any changes and reads of other versions."""
    results = random_maps(chance, 120)
    assert any(type(map_) is maps.MapVersion for map_, _ in results)
    chance.shuffle(results)
    for map_, dict_ in results:
        assert list(maps.read(map_).items()) == list(dict_.items())
        assert len(map_) == len(dict_)


@given(CHANCE)
def test_version_is_indistinguishable_from_a_dict(chance: random.Random) -> None:
    """Type, equality, host form, messages, texts and snapshot form are equal."""
    results = random_maps(chance, 30)
    (map_, dict_), (other, other_dict) = chance.choice(results), chance.choice(results)
    assert maps.is_map(map_)
    assert type_name(map_) == "map"
    assert bool(map_) == bool(dict_)
    assert equal(map_, dict_)
    assert equal(dict_, map_)
    assert equal(map_, other) == (dict_ == other_dict)
    assert to_host(map_) == dict_
    assert list(to_host(map_)) == list(dict_)
    for text in (show, json_text, written):
        assert text(map_) == text(dict_)  # type: ignore[operator]
    stored, expected = HeapWriter(), HeapWriter()
    other_copy = dict_ if other is map_ else dict(other_dict)
    assert stored.write((map_, other, map_)) == expected.write((dict_, other_copy, dict_))
    assert stored.nodes == expected.nodes
    assert equal(HeapReader(stored.nodes).read([len(stored.nodes) - 1]), (map_, other, map_))


@given(CHANCE)
def test_primitives_accept_both_forms(chance: random.Random) -> None:
    """Each map primitive gives the same result for a version and for its dict."""
    map_, dict_ = chance.choice(random_maps(chance, 40))
    key = chance.choice([*dict_, "missing"])
    for name, *operands in (
        *(("get", key), ("get_or", key, 7), ("put", key, 1), ("remove", key), ("has_key", key)),
        *(("keys",), ("values",), ("entries",), ("merge", {key: 5}), ("without_nulls",), ("is_map",)),
        *(("get_field", key), ("lookup_or", (key,), 3), ("is_empty",), ("text",), ("eq", dict_), ("plain",)),
    ):
        assert equal(HANDLERS[name](map_, *operands), HANDLERS[name](dict_, *operands)), name
    assert equal(HANDLERS["unique"]((map_, dict_, map_)), (dict_,))


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the copied maps."""
    sizes: list[int] = []
    begin, restored = maps.begin, maps.MapVersion.restored
    monkeypatch.setattr(maps, "begin", lambda entries: sizes.append(len(entries)) or begin(entries))

    def restore(version: maps.MapVersion) -> Any:
        entries = restored(version)
        sizes.append(len(entries))
        return entries

    monkeypatch.setattr(maps.MapVersion, "restored", restore)
    return sizes


BUILDING = {
    "put": "(put made (string-append 'k i) i)",
    "update": "(update made (string-append 'k i) (lambda (old) i))",
    "merge": "(merge made (dict ((string-append 'k i) i)))",
    "count": "(let ((key (to-string (modulo i 500)))) (put made key (+ 1 (get made key 0))))",
    "remove": "(remove (put (put made (string-append 'k i) i) 'last i) (string-append 'k (- i 700)))",
}


@pytest.mark.parametrize("tier", ["interpreter", "direct"])
@pytest.mark.parametrize("step", BUILDING.values(), ids=BUILDING)
def test_building_copies_few_items(step: str, tier: str, copied: list[int]) -> None:
    """A map of n keys is built with a few copied items per change."""
    text = f"(reduce (lambda (made i) {step}) (dict) (range 0 {{count}}))"
    for count in (1000, 4000):
        copied.clear()
        assert (
            outcome_data(Machine(machine_of(text.format(count=count)).image, tier=tier).resume())[0] == "done"
        )
        assert sum(copied) < (MIN_VERSIONED + 4) * 2 * count, sum(copied)


def test_reading_old_versions_copies_each_once(copied: list[int]) -> None:
    """After its first read an old version owns its entries, also after changes of it."""
    old = maps.put({f"k{number}": number for number in range(1000)}, "a", 1)
    new = maps.put(old, "b", 2)
    copied.clear()
    for _ in range(100):
        assert "b" not in maps.read(old)
        assert len(maps.read(new)) == 1002
    assert copied == [1001]
    copied.clear()
    other = maps.put(old, "c", 3)
    assert "c" not in maps.read(old)
    for number in range(100):
        other = maps.put(other, "c", number)
        assert "b" in maps.read(new)
        assert "c" not in maps.read(old)
    assert copied == [1002]


def test_cost_of_a_read_is_bounded_by_the_map() -> None:
    """After any number of changes, an old version is at most half its size of changes away from a dict."""
    map_: Any = {f"k{number}": number for number in range(100)}
    versions = []
    for number in range(2000):
        map_ = (
            maps.put(map_, f"k{number % 90}", number) if number % 3 else maps.remove(map_, f"k{number % 90}")
        )
        versions.append(map_)
    for version in versions:
        away = 0
        size = len(maps.read(version))
        newer = version
        while newer.undo is not None:
            newer, away = newer.undo[0], away + 1
        assert away <= size


def test_effects_and_faults_accept_versions() -> None:
    """A large map may be an argument of an effect, the operand of `error`, and a caught fault."""
    text = """
    (define (add made i) (put made (string-append 'k i) i))
    (define large (reduce add (dict (kind "odd") (message "no")) (range 0 100)))
    (try (error large) (catch fault (list (get fault "kind") (get fault "message"))))
    """
    assert outcome_data(Machine(machine_of(text).image).resume()) == ("done", "['odd', 'no']")


# Iterations that change a large map, the previous one and the first, and read any of them.
ROUND = """
(define (go i map old first kept)
  (if (= i 12)
      (list map old first kept)
      (go (+ i 1) {map} map first {kept})))
(define start (from-entries (map (lambda (i) (list (string-append "k" i) i)) (range 0 40))))
(go 0 start start start nil)
"""
MAPS = (
    '(put map "k3" i)',
    "(put old (to-string i) i)",
    '(remove map (string-append "k" i))',
    '(remove (put map "k3" i) "k5")',
    "(merge map (dict (a i)))",
    "(merge old first)",
    "(put map (to-string i) (length (keys old)))",
    "(begin (now) (put map (to-string i) i))",
    "(reduce (lambda (made i) (put made (to-string i) i)) map (range 0 30))",
)
KEPT = (
    "kept",
    "(cons map kept)",
    "(cons (get old 'k1) kept)",
    "(cons (keys map) kept)",
    "(list old)",
)


@LAWS
@given(st.sampled_from(MAPS), st.sampled_from(KEPT), st.integers(1, 40), st.integers(0, 255))
def test_both_tiers_agree_about_large_maps(map_: str, kept: str, quantum: int, turns: int) -> None:
    """Results and snapshots are equal, also for machines restored from JSON at any time."""
    assert_tiers_agree(machine_of(ROUND.format(map=map_, kept=kept)).image, quantum, [], turns)


@pytest.mark.parametrize("tier", ["interpreter", "direct"])
def test_operations_on_known_maps(tier: str) -> None:
    """If the type is known to be a map, the operations accept both forms."""
    text = """
    (define start (reduce (lambda (made i) (put made (to-string i) i)) (dict) (range 0 100)))
    (define (ask i)
      (let ((made (put (remove start "1") "a" i)))
        (list (has-key? made "a") (has-key? made "1") (get made "a") (get made "2") (map? made) (empty? made)
              (length (keys made)) (get (merge made (dict (b 1))) "b") (if made 1 2) (get-field made "a"))))
    (begin (ask 1) (ask 2))
    """
    expected = "[True, False, 2, 2, True, False, 100, 1, 1, 2]"
    assert outcome_data(Machine(machine_of(text).image, tier=tier).resume()) == ("done", expected)


def test_unique_version_changes_in_place(copied: list[int]) -> None:
    """The JIT tier changes a large map itself; the maps from which it was derived do not change."""
    text = """
    (define start (reduce (lambda (made i) (put made (to-string i) i)) (dict) (range 0 100)))
    (define (count i map) (if (= i 3000) map (count (+ i 1) (put map (to-string (modulo i 120)) i))))
    (define done (count 0 (remove (put start "a" 1) "50")))
    (list (length (keys start)) (length (keys done)) (get done "50") (first (keys (remove start "0"))))
    """
    for tier in ("interpreter", "direct"):
        copied.clear()
        assert outcome_data(Machine(machine_of(text).image, tier=tier).resume()) == (
            "done",
            "[100, 121, 2930, '1']",
        )
    assert sum(copied) < 8000
