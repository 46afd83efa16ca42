"""Python API for runs: `llc run` and `llc batch` without output. Errors are raised."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..host import files
from ..journal.outcome import Outcome
from ..project import options
from ..project.load import context_option
from .program_api import plain_data
from .run import outcome as run_outcome


def run(
    target: str | files.PathLike[str],
    *,
    script: str | files.PathLike[str] | None = None,
    context: Mapping[str, Any] | None = None,
    max_iterations: int | None = None,
    llm: bool | None = None,
    llm_model: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    declare: Sequence[str] = (),
    budget: Mapping[str, float] | None = None,
) -> Outcome:
    """Run a loop or a flow in the current folder, without output, and return its outcome.

    A run that fails raises nothing; see `Outcome.status`.

    Args:
        target: name or path of the loop or flow.
        script: file of a scripted world to use instead of the real one.
        context: values for the loop's context variables.
        max_iterations: replaces the loop's iteration limit.
        llm: False disables model calls, as `--no-llm`.
        llm_model: model that judges output.
        arguments: values for the parameters of a flow.
        declare: additional tools and tasks, as for `--declare`.
        budget: limits by unit, as for `--budget`.

    Raises:
        CompileError: the loop is invalid.
        UserError: the user can fix the cause (unknown loop, locked scope).
        JournalError: the journal cannot be written.
        TypeError: an argument has the wrong type.
    """
    values = options.Values(
        files.fspath(target),
        quiet=True,
        script=None if script is None else files.fspath(script),
        context=tuple((name, context_option(value)) for name, value in plain_data(context).items()),
        max_iterations=max_iterations,
        no_llm=llm is False,
        llm_model=llm_model,
        arguments=tuple((name, json.dumps(value)) for name, value in plain_data(arguments).items()),
        declare=tuple(declare),
        budget=tuple(
            (unit, bound if isinstance(bound, str) else json.dumps(bound))
            for unit, bound in plain_data(budget).items()
        ),
    )
    return run_outcome(values)


def run_many(jobs: Iterable[str | Mapping[str, Any]], *, at_once: int = 8) -> list[Outcome]:
    """Run several loops or flows concurrently in this process; return their outcomes in the order of `jobs`.

    A job is the name or path of a loop, or a map with the fields of a line for `llc batch` (`loop`,
    `context`, `args`, `scope`, …). at_once: limit of concurrently performed actions. Jobs with overlapping
    scopes run one after another, and wait for runs of other processes. Raises CompileError and UserError
    for invalid jobs before any job starts. A run that fails raises nothing; see `Outcome.status`.
    """
    from . import batch_command  # imports the job schema, which a single run does not need

    return batch_command.outcomes(jobs, at_once)
