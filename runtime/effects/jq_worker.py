"""Helper process of `jq`: libjq with limited memory."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jq  # type: ignore[import-not-found, unused-ignore]

from ..host import signals
from ..models.helper_process import MAX_DEPTH, MAX_MESSAGE, serve

# Limit of the address space, in bytes; a document of 1 MiB needs about 100 MiB.
MEMORY = 1 << 30


def main() -> None:
    serve(answer, MEMORY)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    # Ends an endless program if the run is killed.
    signals.setitimer(signals.ITIMER_REAL, request["limit"] + 1)
    try:
        try:
            values = iter(_compiled(request["program"]).input_text(request["input"]))
            value = next(values)
        finally:
            signals.setitimer(signals.ITIMER_REAL, 0)
        if _is_deep(value):
            return _error("too-deep", f"the value is nested more than {MAX_DEPTH} levels deep")
        return {"value": value}
    except StopIteration:
        return _error("no-value", "the jq program gave no value")
    except ValueError as error:
        text = str(error).strip()[:MAX_MESSAGE]
        if text.startswith("parse error"):
            return _error("invalid-json", f"the text is not JSON: {text.removeprefix('parse error: ')}")
        return _error("jq", text)
    except MemoryError:
        return _error("memory", "the jq program needs too much memory")


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [item for item in level if isinstance(item, list | dict)]
        if not level:
            return False
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
    return True


@lru_cache(maxsize=64)
def _compiled(program: str) -> Any:
    return jq.compile(program)


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message}}
