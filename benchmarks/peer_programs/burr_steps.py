"""Burr with its SQLite persister: two actions that lead to each other.

`kind` is what an action does: "process" starts `true` and is routed by its exit code; "growing" adds
1 KB to a list in every other action.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from time import perf_counter
from typing import Any

from burr.core import ApplicationBuilder, State, action, default, expr
from burr.core.persistence import SQLitePersister
from serving import bytes_in, serve


@action(reads=["done"], writes=["done", "exit_code"])
def run_true(state: State) -> State:
    return state.update(done=state["done"] + 1, exit_code=subprocess.run(["true"]).returncode)


@action(reads=["done", "entries"], writes=["done", "entries"])
def gather(state: State) -> State:
    return state.update(done=state["done"] + 1).append(entries=os.urandom(500).hex())


@action(reads=["done"], writes=["done"])
def pause(state: State) -> State:
    return state.update(done=state["done"] + 1)


@action(reads=[], writes=[])
def end(state: State) -> State:
    return state


KINDS: dict[str, Any] = {
    "process": (run_true, run_true, {"done": 0, "exit_code": 0}),
    "growing": (gather, pause, {"done": 0, "entries": []}),
}


def measure(kind: str, steps: int) -> dict[str, float]:
    first, second, start = KINDS[kind]
    going = f"done < {steps}" + (" and exit_code == 0" if kind == "process" else "")
    with tempfile.TemporaryDirectory(dir=".") as folder:
        with SQLitePersister.from_values(os.path.join(folder, "states.sqlite")) as persister:
            persister.initialize()
            app = (
                ApplicationBuilder()
                .with_actions(first=first, second=second, end=end)
                .with_transitions(
                    ("first", "second", expr(going)),
                    ("first", "end", default),
                    ("second", "first", expr(going)),
                    ("second", "end", default),
                )
                .with_state(**start)
                .with_entrypoint("first")
                .with_state_persister(persister)
                .with_identifiers(app_id="steps")
                .build()
            )
            started_at = perf_counter()
            _, _, state = app.run(halt_before=["end"])
            seconds = perf_counter() - started_at
        kept = bytes_in(folder)
    if state["done"] != steps:
        raise RuntimeError(f"Burr ended with {state['done']} steps")
    return {"seconds": seconds, "bytes": kept}


if __name__ == "__main__":
    serve(measure, kind="growing", steps=3)
