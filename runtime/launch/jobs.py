"""What a batch is to run: loops by name, and jobs from files, one JSON object a line; `spec/cli.md`, Batches.

Owns what a job may say. A line that says something else is refused with its place, before anything runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from ...ir.diagnostics import CompileError, Diagnostic, clean, suggest
from ...ir.digests import sha256
from ...ir.spans import Source, Span
from ..host.errors import UserError, reason
from ..project import options

SUFFIX = ".jsonl"
STANDARD_INPUT = "-"
# A longer line is no job, and so many wrong ones are told.
_LONGEST = 16 << 20
_MOST_TOLD = 20


class Job:
    """One run that is wanted.

    number: its place among all, from 1. values: as the options of `llc run` give them. scope: what it
    works on, None for what its program says. span: where it stands in a file, with `source`.
    """

    __slots__ = ("number", "scope", "source", "span", "values")

    def __init__(
        self,
        number: int,
        values: options.Values,
        scope: list[str] | None = None,
        span: Span | None = None,
        source: Source | None = None,
    ) -> None:
        self.number = number
        self.values = values
        self.scope = scope
        self.span = span
        self.source = source


def _texts(value: Any) -> str | None:
    if not isinstance(value, dict):
        return "a map of names to values"
    return None


def _count(value: Any) -> str | None:
    return None if type(value) is int and 0 < value < 10**9 else "a number of 1 or more"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) and value else "a text"


def _paths(value: Any) -> str | None:
    is_list = isinstance(value, list) and all(isinstance(path, str) and path for path in value)
    return None if is_list else "a list of paths"


# What a job may say: its fields, and what is wrong with a value if something is.
FIELDS = {
    "loop": _text,
    "context": _texts,
    "args": _texts,
    "scope": _paths,
    "max_iterations": _count,
    "llm_model": _text,
    "budget": _texts,
}


def named(targets: Iterable[str], given: Mapping[str, Any]) -> list[Job]:
    """The jobs that words mean; `given` are options for all. Raises CompileError and UserError."""
    found: list[Job] = []
    for target in targets:
        if target == STANDARD_INPUT:
            found += _read("<stdin>", sys.stdin.buffer.read() if sys.stdin else b"", given, len(found))
        elif target.endswith(SUFFIX):
            try:
                with open(target, "rb") as file:
                    data = file.read()
            except OSError as error:
                raise UserError("unreadable-file", f"cannot read {target}: {reason(error)}") from None
            found += _read(target, data, given, len(found))
        else:
            found.append(Job(len(found) + 1, _values(target, given)))
    return found


def from_data(jobs: Iterable[str | Mapping[str, Any]]) -> list[Job]:
    """The jobs that loops' names and maps of the same fields mean. Raises UserError."""
    found: list[Job] = []
    for number, job in enumerate(jobs, 1):
        said: Any = {"loop": job} if isinstance(job, str) else job
        if not isinstance(said, Mapping):
            raise UserError("bad-job", f"job {number} is {type(job).__name__}, not a loop's name or a map")
        trouble = _trouble(dict(said))
        if trouble is not None:
            raise UserError("bad-job", f"job {number}: {trouble[0]}", trouble[1])
        found.append(_job(number, dict(said), {}))
    return found


def _read(path: str, data: bytes, given: Mapping[str, Any], before: int) -> list[Job]:
    text = data.decode("utf-8", "replace")
    source = Source(path, sha256(data).hexdigest(), text)
    found: list[Job] = []
    wrong: list[Diagnostic] = []
    plain: dict[str, options.Values] = {}  # of jobs that say nothing of their own
    for line, row in enumerate(text.split("\n"), 1):
        if not row.strip():
            continue
        span = Span(path, line, len(row) - len(row.lstrip()) + 1, line, len(row.rstrip()) + 1)
        said, trouble = _parse(row)
        if trouble is None:
            trouble = _trouble(said)
        if trouble is not None:
            wrong.append(Diagnostic("bad-job", trouble[0], span, "here", trouble[1]))
        else:
            job = _job(before + len(found) + 1, said, given)
            if not said.keys() - {"loop", "scope"}:
                job.values = plain.setdefault(said["loop"], job.values)
            job.span, job.source = span, source
            found.append(job)
    if wrong:
        raise CompileError(wrong[:_MOST_TOLD], [source])
    return found


class _Twice(ValueError):
    """A name that stands twice in an object."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Twice(name)
        found[name] = value
    return found


def _parse(row: str) -> tuple[dict[str, Any], tuple[str, str | None] | None]:
    """What a line says, or what is wrong with it and how to mend that."""
    example = 'such as {"loop": "fix-types", "context": {"target": "src/"}}'
    if len(row) > _LONGEST:
        return {}, (f"the line is longer than {_LONGEST >> 20} MiB", "give a file's name instead of its text")
    try:
        said = json.loads(row, object_pairs_hook=_once)
    except _Twice as error:
        return {}, (f"`{clean(str(error), 40)}` stands twice in it", "keep one of them")
    except (ValueError, RecursionError) as error:
        told = error.msg.lower() if isinstance(error, json.JSONDecodeError) else str(error)
        return {}, (f"the line is no JSON: {told}", f"one object a line, {example}")
    if not isinstance(said, dict):
        return {}, ("the line is no JSON object", f"one object a line, {example}")
    return said, None


def _trouble(said: dict[str, Any]) -> tuple[str, str | None] | None:
    """What is wrong with a job, and how to mend that."""
    for name, value in said.items():
        check = FIELDS.get(name)
        if check is None:
            return f"a job has no field `{name[:40]}`", suggest(name, FIELDS, "it may have")
        wanted = check(value)
        if wanted is not None:
            return f"`{name}` is {wanted}", None
    if "loop" not in said:
        return "it does not say which loop to run", 'add "loop": a name or a path'
    return None


def _job(number: int, said: dict[str, Any], given: Mapping[str, Any]) -> Job:
    own: dict[str, Any] = {name: said[name] for name in ("max_iterations", "llm_model") if name in said}
    for field, option in (("context", "context"), ("budget", "budget")):
        if field in said:
            texts = (
                (name, value if isinstance(value, str) else json.dumps(value))
                for name, value in said[field].items()
            )
            own[option] = (*given.get(option, ()), *texts)
    if "args" in said:
        values = ((name, json.dumps(value)) for name, value in said["args"].items())
        own["arguments"] = (*given.get("arguments", ()), *values)
    return Job(number, _values(said["loop"], {**given, **own}), said.get("scope"))


def _values(target: str, given: Mapping[str, Any]) -> options.Values:
    return options.Values(options.RUN, target, **{**given, "quiet": True, "queue": True, "json": False})
