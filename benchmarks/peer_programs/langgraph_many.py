"""LangGraph with its asynchronous SQLite checkpointer: many graphs that sleep, as coroutines."""

from __future__ import annotations

import asyncio
import os
import tempfile
from time import perf_counter
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from serving import serve


class Counted(TypedDict):
    done: int


def _peak() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))


async def _run(count: int, seconds: float, path: str) -> float:
    asleep: list[float] = []

    async def sleep(state: Any) -> dict[str, Any]:
        asleep.append(perf_counter())
        await asyncio.sleep(seconds)
        return {"done": state["done"] + 1}

    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        graph = StateGraph(Counted)
        graph.add_node("sleep", sleep)
        graph.add_edge(START, "sleep")
        graph.add_edge("sleep", END)
        app = graph.compile(checkpointer=saver)
        started_at = perf_counter()
        runs = (
            app.ainvoke({"done": 0}, {"configurable": {"thread_id": str(number)}}) for number in range(count)
        )
        states = await asyncio.gather(*runs)
    if [state["done"] for state in states] != [1] * count:
        raise RuntimeError("LangGraph did not end all of them")
    return max(asleep) - started_at


def measure(count: int, seconds: float) -> dict[str, float]:
    """The peak of the memory before and after, and until all slept; a process answers for one count."""
    before = _peak()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        started = asyncio.run(_run(count, seconds, os.path.join(folder, "checkpoints.sqlite")))
    return {"bytes": (_peak() - before) / count, "seconds": started / count}


if __name__ == "__main__":
    serve(measure, count=1, seconds=0.01)
