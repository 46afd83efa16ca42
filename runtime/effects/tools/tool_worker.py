"""Helper process of tools that are Python functions.

A function may crash, hang, print or leave threads behind, which affects only this process and not the run.
Its module is searched in the working directory of the run, then in `.loops/`, then on `sys.path`.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os.path
import sys
import traceback
from collections.abc import Callable
from typing import Any

from ...host import environment, files
from ...host.paths import LOOPS
from ...models.helper_process import MAX_DEPTH, MAX_MESSAGE, serve

MAX_TRACE = 4000


def main() -> None:
    sys.path[:0] = [environment.getcwd(), os.path.join(environment.getcwd(), LOOPS)]
    serve(answer)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    for name, value in request["env"].items():
        if value is None:
            environment.environ.pop(name, None)
        else:
            environment.environ[name] = value
    try:
        function = entry_point(request["entry"])
        value = function(**request["args"])
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
        return {"value": plain(value)}
    except (Exception, SystemExit) as error:
        return {"error": _describe(error)}


def entry_point(text: str) -> Callable[..., Any]:
    """The function `module:name`. Raises ImportError if it does not exist or is not callable."""
    module, _, name = text.partition(":")
    target: Any = importlib.import_module(module)
    for part in name.split("."):
        if not hasattr(target, part):
            raise ImportError(f"`{module}` has no `{name}`")
        target = getattr(target, part)
    if not callable(target):
        raise ImportError(f"`{text}` is not a function")
    function: Callable[..., Any] = target
    return function


def plain(value: Any, depth: int = 0) -> Any:
    """Convert a value to plain data. Raises TypeError for values that cannot be converted."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth > MAX_DEPTH:
        raise TypeError(f"the return value is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the return value has a key that is not a text: {key!r:.60}")
        return {key: plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, files.PathLike):
        return files.fspath(value)
    if hasattr(type(value), "__attrs_attrs__") or hasattr(type(value), "__dataclass_fields__"):
        names = getattr(type(value), "__dataclass_fields__", None) or [
            field.name for field in type(value).__attrs_attrs__
        ]
        return {name: plain(getattr(value, name), depth + 1) for name in names}
    raise TypeError(f"the return value is not plain data: {type(value).__name__}")


def _describe(error: BaseException) -> dict[str, Any]:
    text = str(error)[:MAX_MESSAGE]
    trace = "".join(traceback.format_exception(error))[-MAX_TRACE:]
    return {
        "kind": "tool-error",
        "message": f"{type(error).__name__}: {text}" if text else type(error).__name__,
        "details": {"traceback": trace},
    }
