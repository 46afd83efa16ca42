"""The jobs of a batch: loops by name, and JSON Lines files with one job a line; `spec/cli.md`, Batches.

Owns the schema of a job. A line that does not fit it is refused with its place before anything runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ...frontend.source.document import Document, Node, Refused
from ...frontend.source.json_tree import DuplicateKey, parse_json, to_tree
from ...frontend.source.schema import JSON, TEXT, Spec, Type, block, fields_of, optional, required
from ...frontend.source.schema_reader import SchemaReader
from ...ir.diagnostics import CompileError, clean
from ...ir.light_records import LightRecord
from ...ir.python_internals import sha256
from ...ir.spans import Source, Span
from ..host import files
from ..host.errors import UserError, reason
from ..project import options
from ..project.load import context_option

SUFFIX = ".jsonl"
STANDARD_INPUT = "-"
# Limits of a line in characters, and of the errors that are reported.
_LONGEST = 16 << 20
_MOST_TOLD = 20
_EXAMPLE = 'one object a line, such as {"loop": "fix-types", "context": {"target": "src/"}}'


class Job(LightRecord):
    """One requested run.

    number: its position among all, from 1. values: options as of `llc run`. scope: the paths it works
    on, None for those that its program declares. span: its place in a file, `source`.
    """

    number: int
    values: options.Values
    scope: list[str] | None = None
    span: Span | None = None
    source: Source | None = None


_VALUES = Type("map", JSON, expected="a map of names to values")


class JobSpec(Spec):
    """One run of a batch."""

    noun: ClassVar[str] = "a job"

    loop: str = required(TEXT, "The loop to run: a name or a path.")
    context: Mapping[str, Any] | None = optional(_VALUES, "Values for the loop's context variables.")
    args: Mapping[str, Any] | None = optional(_VALUES, "Values for the parameters of a flow.")
    scope: tuple[str, ...] | None = optional(
        Type("list", TEXT, expected="a list of paths"),
        "Paths that the run works on, for locks; absent: as the loop says; `[]`: none.",
    )
    max_iterations: int | None = optional(Type("integer", least=1, most=1e9), "Iterations at most.")
    llm_model: str | None = optional(TEXT, "The model that judges output.")
    budget: Mapping[str, Any] | None = optional(_VALUES, "What agent and model calls may use, by unit.")


def named(targets: Iterable[str], given: Mapping[str, Any]) -> list[Job]:
    """The jobs that words mean; `given` are options for all. Raises CompileError and UserError."""
    found: list[Job] = []
    for target in targets:
        if target == STANDARD_INPUT:
            found += _read("<stdin>", sys.stdin.buffer.read() if sys.stdin else b"", given, len(found))
        elif target.endswith(SUFFIX):
            try:
                with files.open(target, "rb") as file:
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
        document = Document(Source(f"job {number}", "", ""))
        spec = _job_spec(document, to_tree(dict(said)))
        if spec is None:
            first = next(finding for finding in document.diagnostics if finding.is_error)
            raise UserError("bad-job", f"job {number}: {first.message}", first.help)
        found.append(_job(number, spec, {}))
    return found


def _read(path: str, data: bytes, given: Mapping[str, Any], before: int) -> list[Job]:
    text = data.decode("utf-8", "replace")
    source = Source(path, sha256(data).hexdigest(), text)
    document = Document(source)
    found: list[Job] = []
    plain: dict[str, options.Values] = {}  # of jobs that say nothing of their own
    at = 0
    for row in text.split("\n"):
        start, at = at, at + len(row) + 1
        if not row.strip():
            continue
        start, end = start + len(row) - len(row.lstrip()), start + len(row.rstrip())
        span = document.span_at(start, end)
        try:
            spec = _parsed(document, row, start, end)
        except Refused:
            break
        if spec is None:
            continue
        job = _job(before + len(found) + 1, spec, given)
        if not any(spec.is_given(key) for key in fields_of(JobSpec).keys() - {"loop", "scope"}):
            job.values = plain.setdefault(spec.loop, job.values)
        job.span, job.source = span, source
        found.append(job)
    errors = [finding for finding in document.diagnostics if finding.is_error]
    if errors:
        raise CompileError(errors[:_MOST_TOLD], [source])
    return found


def _parsed(document: Document, row: str, start: int, end: int) -> JobSpec | None:
    """The job in a line; None where something is wrong with it, which is reported."""
    message = help = None
    value = None
    if len(row) > _LONGEST:
        message = f"the line is longer than {_LONGEST >> 20} MiB"
        help = "give a file's name instead of its text"
    else:
        try:
            value = parse_json(row)
        except DuplicateKey as error:
            message, help = f"`{clean(str(error), 40)}` is given twice", "keep one of them"
        except (ValueError, RecursionError) as error:
            told = error.msg.lower() if isinstance(error, json.JSONDecodeError) else str(error)
            message, help = f"the line is not JSON: {told}", _EXAMPLE
        else:
            if not isinstance(value, dict):
                message, help = "the line is not a JSON object", _EXAMPLE
    if message is not None:
        document.fail("bad-job", message, document.span_at(start, end), "here", help)
        return None
    return _job_spec(document, to_tree(value, start, end))


def _job_spec(document: Document, node: Node) -> JobSpec | None:
    known = len(document.diagnostics)
    spec = SchemaReader(document).spec(block(JobSpec), node, "a job")
    is_wrong = any(finding.is_error for finding in document.diagnostics[known:])
    return spec if isinstance(spec, JobSpec) and not is_wrong else None


def _job(number: int, spec: JobSpec, given: Mapping[str, Any]) -> Job:
    own: dict[str, Any] = {
        name: getattr(spec, name) for name in ("max_iterations", "llm_model") if spec.is_given(name)
    }
    for field in ("context", "budget"):
        if spec.is_given(field):
            pairs = ((name, context_option(value)) for name, value in getattr(spec, field).items())
            own[field] = (*given.get(field, ()), *pairs)
    if spec.args is not None:
        values = ((name, json.dumps(value)) for name, value in spec.args.items())
        own["arguments"] = (*given.get("arguments", ()), *values)
    scope = None if spec.scope is None else list(spec.scope)
    return Job(number, _values(spec.loop, {**given, **own}), scope)


def _values(target: str, given: Mapping[str, Any]) -> options.Values:
    return options.Values(target, **{**given, "quiet": True, "queue": True, "json": False})
