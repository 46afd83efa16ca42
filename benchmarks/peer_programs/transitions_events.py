"""transitions: a machine of two working states, each left by the verdict on an answer."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from serving import serve
from transitions import Machine

ANSWER = {"output": "", "stderr": "", "exit_code": 0, "duration_ms": 1, "elapsed_ms": 1}


class Work:
    """The model: it counts its visits, as a loop does."""

    def __init__(self) -> None:
        self.visits = {"first": 0, "second": 0}

    def count(self) -> None:
        self.visits[self.state] += 1  # type: ignore[attr-defined] # the machine sets it


def measure(events: int) -> dict[str, float]:
    work: Any = Work()
    Machine(
        work,
        states=["first", "second", "failed"],
        transitions=[
            {"trigger": "success", "source": "first", "dest": "second", "after": "count"},
            {"trigger": "success", "source": "second", "dest": "first", "after": "count"},
            {"trigger": "failure", "source": ["first", "second"], "dest": "failed"},
        ],
        initial="first",
    )
    started_at = perf_counter()
    for _ in range(events):
        if ANSWER["exit_code"] == 0:
            work.success()
        else:
            work.failure()
    seconds = perf_counter() - started_at
    if sum(work.visits.values()) != events:
        raise RuntimeError(f"transitions counted {work.visits}")
    return {"seconds": seconds}


if __name__ == "__main__":
    serve(measure, events=3)
