"""LangGraph with its SQLite checkpointer: a graph whose process dies half-way, and is invoked again."""

from __future__ import annotations

from typing import Any, TypedDict

from cut import die, main
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph


class Counted(TypedDict):
    done: int
    exit_code: int


def invoke(path: str, steps: int, given: Any, is_cut: bool) -> int:
    def work(state: Any) -> dict[str, Any]:
        if state["done"] == steps and is_cut:
            die()
        return {"done": state["done"] + 1, "exit_code": 0}

    def route(state: Any) -> str:
        return END if state["done"] > steps else "work"

    graph = StateGraph(Counted)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", route, ["work", END])
    config: Any = {"configurable": {"thread_id": "1"}, "recursion_limit": steps + 10}
    with SqliteSaver.from_conn_string(path) as saver:
        state = graph.compile(checkpointer=saver).invoke(given, config, durability="sync")
    return int(state["done"])


def begin(path: str, steps: int) -> None:
    invoke(path, steps, {"done": 0, "exit_code": 0}, True)


def resume(path: str, steps: int) -> int:
    return invoke(path, steps, None, False)


if __name__ == "__main__":
    main(begin, resume)
