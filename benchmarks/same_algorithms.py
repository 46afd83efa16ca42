"""The Python twins of three general programs with the algorithm of the program.

The twins in `general_programs` sort and keep a heap with functions that are written in C. These here show
which part of a ratio is the algorithm, and which the execution by llc.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Heap = Any  # (rank, value, left, right) or None


def priority(size: int) -> int:
    """A leftist heap of tuples."""

    def rank(heap: Heap) -> int:
        return 0 if heap is None else int(heap[0])

    def join(a: Heap, b: Heap) -> Heap:
        if a is None:
            return b
        if b is None:
            return a
        if a[1] <= b[1]:
            return make(a[1], a[2], join(a[3], b))
        return make(b[1], b[2], join(b[3], a))

    def make(value: int, left: Heap, right: Heap) -> Heap:
        if rank(left) < rank(right):
            left, right = right, left
        return rank(right) + 1, value, left, right

    heap: Heap = None
    for i in range(size):
        heap = join(heap, (1, i * 7919 % 10007, None, None))
    total = at = 0
    while heap is not None:
        total += at % 7 * heap[1]
        heap = join(heap[2], heap[3])
        at += 1
    return total


def intervals(size: int) -> int:
    """Intervals, sorted by a comparison."""
    spans = [(i * 7919 % 100003, i * 7919 % 100003 + i % 23) for i in range(size)]
    joined: list[tuple[int, int]] = []
    for start, end in _merge_sort(spans, lambda a, b: bool(a[0] < b[0])):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return sum(end - start for start, end in joined)


def sorting(size: int) -> int:
    """A merge sort with a comparison of two parts."""

    def is_less(a: int, b: int) -> bool:
        return a % 10 < b % 10 or (a % 10 == b % 10 and a > b)

    done = _merge_sort([i * 7919 % 10007 for i in range(size)], is_less)
    return int(done[0] + 3 * done[size // 2])


def _merge_sort(items: list[Any], is_less: Callable[[Any, Any], bool]) -> list[Any]:
    if len(items) < 2:
        return items
    half = len(items) // 2
    left, right = _merge_sort(items[:half], is_less), _merge_sort(items[half:], is_less)
    i = j = 0
    done = []
    while i < len(left) and j < len(right):
        if is_less(right[j], left[i]):
            done.append(right[j])
            j += 1
        else:
            done.append(left[i])
            i += 1
    return [*done, *left[i:], *right[j:]]


# By the name of the program.
SAME: dict[str, Callable[[int], object]] = {
    "a priority queue": priority,
    "intervals": intervals,
    "merge sort": sorting,
}
