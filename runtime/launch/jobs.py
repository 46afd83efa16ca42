"""Jobs of a batch: loop names, and JSON Lines files with one job a line (`spec/cli.md`, Batches).

Owns the schema of a job. An invalid line is reported with its position before any job starts.
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
_MAX_LINE_CHARS = 16 << 20
_MAX_REPORTED_ERRORS = 20
_EXAMPLE = 'one object a line, such as {"loop": "fix-types", "context": {"target": "src/"}}'


class Job(LightRecord):
    """A requested run.

    number: position in the batch, from 1. values: options of `llc run`. scope: paths to lock; None for the
    scope of the program. span: position in the job file `source`.
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
        "Paths that the run works on, for locks; default: the scope of the loop; `[]`: none.",
    )
    max_iterations: int | None = optional(Type("integer", least=1, most=1e9), "Iterations at most.")
    llm_model: str | None = optional(TEXT, "The model that judges output.")
    budget: Mapping[str, Any] | None = optional(_VALUES, "What agent and model calls may use, by unit.")


def of_targets(targets: Iterable[str], shared: Mapping[str, Any]) -> list[Job]:
    """Jobs of command line arguments: loops, job files, `-`. Raises CompileError and UserError.

    shared: options that apply to all jobs.
    """
    jobs: list[Job] = []
    for target in targets:
        if target == STANDARD_INPUT:
            jobs += _read("<stdin>", sys.stdin.buffer.read() if sys.stdin else b"", shared, len(jobs))
        elif target.endswith(SUFFIX):
            try:
                with files.open(target, "rb") as file:
                    data = file.read()
            except OSError as error:
                raise UserError("unreadable-file", f"cannot read {target}: {reason(error)}") from None
            jobs += _read(target, data, shared, len(jobs))
        else:
            jobs.append(Job(len(jobs) + 1, _values(target, shared)))
    return jobs


def from_data(jobs: Iterable[str | Mapping[str, Any]]) -> list[Job]:
    """Jobs from loop names and maps with the fields of `JobSpec`. Raises UserError."""
    result: list[Job] = []
    for number, job in enumerate(jobs, 1):
        fields: Any = {"loop": job} if isinstance(job, str) else job
        if not isinstance(fields, Mapping):
            raise UserError("bad-job", f"job {number} is {type(job).__name__}, not a loop's name or a map")
        document = Document(Source(f"job {number}", "", ""))
        spec = _job_spec(document, to_tree(dict(fields)))
        if spec is None:
            first = next(finding for finding in document.diagnostics if finding.is_error)
            raise UserError("bad-job", f"job {number}: {first.message}", first.help)
        result.append(_job(number, spec, {}))
    return result


def _read(path: str, data: bytes, shared: Mapping[str, Any], count_before: int) -> list[Job]:
    text = data.decode("utf-8", "replace")
    source = Source(path, sha256(data).hexdigest(), text)
    document = Document(source)
    jobs: list[Job] = []
    # Options by loop, shared by all jobs that set none of their own.
    default_values: dict[str, options.Values] = {}
    offset = 0
    for line in text.split("\n"):
        start, offset = offset, offset + len(line) + 1
        if not line.strip():
            continue
        start, end = start + len(line) - len(line.lstrip()), start + len(line.rstrip())
        span = document.span_at(start, end)
        try:
            spec = _parse(document, line, start, end)
        except Refused:
            break
        if spec is None:
            continue
        job = _job(count_before + len(jobs) + 1, spec, shared)
        if not any(spec.is_given(key) for key in fields_of(JobSpec).keys() - {"loop", "scope"}):
            job.values = default_values.setdefault(spec.loop, job.values)
        job.span, job.source = span, source
        jobs.append(job)
    errors = [finding for finding in document.diagnostics if finding.is_error]
    if errors:
        raise CompileError(errors[:_MAX_REPORTED_ERRORS], [source])
    return jobs


def _parse(document: Document, line: str, start: int, end: int) -> JobSpec | None:
    """The job in a line; None if it is invalid, with the errors in the document."""
    message = help = None
    value = None
    if len(line) > _MAX_LINE_CHARS:
        message = f"the line is longer than {_MAX_LINE_CHARS >> 20} MiB"
        help = "give the name of a file instead of its text"
    else:
        try:
            value = parse_json(line)
        except DuplicateKey as error:
            message, help = f"`{clean(str(error), 40)}` is given twice", "keep one of them"
        except (ValueError, RecursionError) as error:
            detail = error.msg.lower() if isinstance(error, json.JSONDecodeError) else str(error)
            message, help = f"the line is not JSON: {detail}", _EXAMPLE
        else:
            if not isinstance(value, dict):
                message, help = "the line is not a JSON object", _EXAMPLE
    if message is not None:
        document.fail("bad-job", message, document.span_at(start, end), "here", help)
        return None
    return _job_spec(document, to_tree(value, start, end))


def _job_spec(document: Document, node: Node) -> JobSpec | None:
    count_before = len(document.diagnostics)
    spec = SchemaReader(document).spec(block(JobSpec), node, "a job")
    has_error = any(finding.is_error for finding in document.diagnostics[count_before:])
    return spec if isinstance(spec, JobSpec) and not has_error else None


def _job(number: int, spec: JobSpec, shared: Mapping[str, Any]) -> Job:
    own: dict[str, Any] = {
        name: getattr(spec, name) for name in ("max_iterations", "llm_model") if spec.is_given(name)
    }
    for field in ("context", "budget"):
        if spec.is_given(field):
            pairs = ((name, context_option(value)) for name, value in getattr(spec, field).items())
            own[field] = (*shared.get(field, ()), *pairs)
    if spec.args is not None:
        values = ((name, json.dumps(value)) for name, value in spec.args.items())
        own["arguments"] = (*shared.get("arguments", ()), *values)
    scope = None if spec.scope is None else list(spec.scope)
    return Job(number, _values(spec.loop, {**shared, **own}), scope)


def _values(target: str, fields: Mapping[str, Any]) -> options.Values:
    return options.Values(target, **{**fields, "quiet": True, "queue": True, "json": False})
