"""The subcommand `schema`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from ....ir import results
from ....ir.diagnostics import suggest
from ...authoring.file_schemas import FILE_SCHEMAS
from ...host.errors import UserError
from ...journal.journal import write_file
from .. import parameters as cli
from ..output import write_data

# By kind of file or result: function that creates the schema.
SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    **FILE_SCHEMAS,
    **{name: partial(results.json_schema, cls) for name, cls in results.CLASSES.items()},
}


def complete_schema(incomplete: str) -> list[str]:
    return [name for name in SCHEMAS if name.startswith(incomplete)]


def schema(
    kind: Annotated[
        str,
        cli.argument(
            "[KIND]",
            "`loop`, `config`, `agent`, `tools`, `world`, `case`, `job`, or a result: `TaskResult`.",
            complete_schema,
        ),
    ] = "loop",
    output: cli.Output = None,
) -> int:
    """Print the JSON Schema of a kind of file or of a result."""
    if kind not in SCHEMAS:
        raise UserError("unknown-choice", f"no schema of `{kind[:80]}`", suggest(kind, SCHEMAS, "schemas"))
    text = json.dumps(SCHEMAS[kind](), indent=2, ensure_ascii=False) + "\n"
    if output:
        write_file(output, text.encode(), durable=False)
    else:
        write_data(text)
    return 0
