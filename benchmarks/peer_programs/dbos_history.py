"""DBOS with SQLite: a workflow whose process dies after many steps, and that another process recovers."""

from __future__ import annotations

from typing import Any

from cut import die, main
from dbos import DBOS, SetWorkflowID


def workflow(path: str, steps: int, is_cut: bool) -> Any:
    config: Any = {"name": "bench", "system_database_url": f"sqlite:///{path}", "log_level": "CRITICAL"}
    DBOS(config={**config, "application_version": "1", "run_admin_server": False})

    @DBOS.step()
    def work(done: int) -> dict[str, Any]:
        if done == steps and is_cut:
            die()
        return {"done": done + 1, "exit_code": 0}

    @DBOS.workflow()
    def flow() -> int:
        done = 0
        while done <= steps:
            done = work(done)["done"]
        return done

    DBOS.launch()
    return flow


def begin(path: str, steps: int) -> None:
    flow = workflow(path, steps, True)
    with SetWorkflowID("1"):
        flow()


def resume(path: str, steps: int) -> int:
    """To launch DBOS is to recover what its process has left."""
    workflow(path, steps, False)
    done: int = DBOS.retrieve_workflow("1").get_result(polling_interval_sec=0.01)
    DBOS.destroy()
    return done


if __name__ == "__main__":
    main(begin, resume)
