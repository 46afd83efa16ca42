"""LangGraph with its SQLite checkpointer: a graph of two nodes that lead to each other.

`kind` is what a node does: "process" starts `true` and is routed by its exit code; "growing" adds
1 KB to a list in every other node, by a reducer; "delta" does too, in a `DeltaChannel` (beta).
"""

from __future__ import annotations

import operator
import os
import subprocess
import tempfile
from time import perf_counter
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from serving import bytes_in, serve


class Counted(TypedDict):
    done: int
    exit_code: int


class Growing(TypedDict):
    done: int
    entries: Annotated[list[str], operator.add]


def append(entries: list[str], writes: list[list[str]]) -> list[str]:
    return [*entries, *(entry for write in writes for entry in write)]


class Delta(TypedDict):
    done: int
    entries: Annotated[list[str], DeltaChannel(append)]


def run_true(state: Any) -> dict[str, Any]:
    return {"done": state["done"] + 1, "exit_code": subprocess.run(["true"]).returncode}


def gather(state: Any) -> dict[str, Any]:
    return {"done": state["done"] + 1, "entries": [os.urandom(500).hex()]}


def pause(state: Any) -> dict[str, Any]:
    return {"done": state["done"] + 1}


KINDS = {
    "process": (Counted, run_true, run_true, {"done": 0, "exit_code": 0}),
    "growing": (Growing, gather, pause, {"done": 0, "entries": []}),
    "delta": (Delta, gather, pause, {"done": 0, "entries": []}),
}


def measure(kind: str, steps: int, durability: str) -> dict[str, float]:
    schema, first, second, start = KINDS[kind]

    def onward(other: str) -> Any:
        def route(state: Any) -> str:
            return END if state["done"] >= steps or state.get("exit_code") else other

        return route

    graph = StateGraph(schema)
    graph.add_node("first", first)
    graph.add_node("second", second)
    graph.add_edge(START, "first")
    graph.add_conditional_edges("first", onward("second"), ["second", END])
    graph.add_conditional_edges("second", onward("first"), ["first", END])
    with tempfile.TemporaryDirectory(dir=".") as folder:
        with SqliteSaver.from_conn_string(os.path.join(folder, "checkpoints.sqlite")) as saver:
            app = graph.compile(checkpointer=saver)
            config = {"configurable": {"thread_id": "1"}, "recursion_limit": steps + 10}
            started_at = perf_counter()
            state = app.invoke(start, config, durability=durability)
            seconds = perf_counter() - started_at
        kept = bytes_in(folder)
    if state["done"] != steps or len(state.get("entries", ())) != (kind != "process") * (steps + 1) // 2:
        raise RuntimeError(f"LangGraph ended with {state['done']} steps")
    return {"seconds": seconds, "bytes": kept}


if __name__ == "__main__":
    serve(measure, kind="growing", steps=3, durability="sync")
