"""The helper process of tools that are functions of Python.

A function may crash, hang, print or leave threads behind; that affects only this process, not the run.
Its module is searched for in the folder of the run, then in `.loops/`, then on the usual path.
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
        return {"error": _told(error)}


def entry_point(text: str) -> Callable[..., Any]:
    """The function that `module:name` names; ImportError, with what is wrong, where there is none."""
    module, _, name = text.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ImportError(f"`{module}` has no `{name}`")
        found = getattr(found, part)
    if not callable(found):
        raise ImportError(f"`{text}` is no function")
    function: Callable[..., Any] = found
    return function


def plain(value: Any, depth: int = 0) -> Any:
    """A value as plain data; TypeError for what is none."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth > MAX_DEPTH:
        raise TypeError(f"what it gave is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"what it gave has a key that is no text: {key!r:.60}")
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
    raise TypeError(f"what it gave is no plain data: {type(value).__name__}")


def _told(error: BaseException) -> dict[str, Any]:
    text = str(error)[:MAX_MESSAGE]
    trace = "".join(traceback.format_exception(error))[-MAX_TRACE:]
    return {
        "kind": "tool-error",
        "message": f"{type(error).__name__}: {text}" if text else type(error).__name__,
        "details": {"traceback": trace},
    }
