"""The Typer declarations of the parameters that several subcommands share."""

from __future__ import annotations

from typing import Annotated

import typer

from .completers import complete_answer as complete_answer
from .completers import complete_any_run as complete_any_run
from .completers import complete_case as complete_case
from .completers import complete_case_or_run as complete_case_or_run
from .completers import complete_loop as complete_loop
from .completers import complete_question as complete_question
from .completers import complete_run as complete_run
from .completers import complete_server as complete_server
from .completers import complete_tool as complete_tool

# --- arguments ----------------------------------------------------------------------------------

Loop = Annotated[
    str,
    typer.Argument(
        help="A loop's name, or the path of a .yaml, .sexp, .ir or .llb file.",
        metavar="LOOP",
        autocompletion=complete_loop,
    ),
]
Run = Annotated[
    str,
    typer.Argument(
        help="A run's id or folder, or a loop's name for its last run.",
        metavar="RUN",
        autocompletion=complete_any_run,
    ),
]
RunOrCase = Annotated[
    str,
    typer.Argument(
        help="A run's id or folder, a loop's name for its last run, or a case.",
        metavar="RUN",
        autocompletion=complete_case_or_run,
    ),
]
RunOrLoop = Annotated[
    str,
    typer.Argument(
        help="A run's id, or a loop's name for its last run.",
        metavar="RUN|LOOP",
        autocompletion=complete_any_run,
    ),
]
UnfinishedRun = Annotated[
    str,
    typer.Argument(help="A run's id, or a loop's name.", metavar="RUN|LOOP", autocompletion=complete_run),
]

# --- output -------------------------------------------------------------------------------------

Json = Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")]
JsonOutcome = Annotated[
    bool,
    typer.Option("--json", help="Write one JSON object to stdout when the run ends; progress to stderr."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show more: waits, model calls, reasons, all output.")
]
Profile = Annotated[bool, typer.Option("--profile", help="Show a time profile when the run ends.")]
Flame = Annotated[
    str | None,
    typer.Option(
        "--flame",
        metavar="FILE",
        help="Write a flame graph: FILE.json for speedscope, else collapsed stacks.",
    ),
]

# --- what a program is compiled to --------------------------------------------------------------

MaxIterations = Annotated[
    int | None,
    typer.Option("--max-iterations", metavar="N", min=1, help="Override the loop's limit of iterations."),
]
NoLlm = Annotated[
    bool, typer.Option("--no-llm", help="Judge slash commands by their exit code, without a model.")
]
LlmModel = Annotated[
    str | None,
    typer.Option("--llm-model", metavar="MODEL", help="Override the model that judges output."),
]
Context = Annotated[
    list[str] | None,
    typer.Option("--context", metavar="K=V", help="Set a context variable of the loop; may be repeated."),
]
Arguments = Annotated[
    list[str] | None,
    typer.Option("--arg", metavar="K=V", help="Set a variable of a flow, JSON or text; may be repeated."),
]
Declare = Annotated[
    list[str] | None,
    typer.Option(
        "--declare",
        metavar="NAME[(X,Y)]",
        help="A tool, or `task NAME`, that flows may call, with its parameters if known; may be repeated.",
    ),
]
MaxExpansions = Annotated[
    int | None,
    typer.Option("--max-expansions", metavar="N", min=1, help="Limit of macro expansions (default 250,000)."),
]
MaxNesting = Annotated[
    int | None,
    typer.Option(
        "--max-nesting", metavar="N", min=1, help="Limit of nested brackets in a flow (default 1,000)."
    ),
]

# --- how a program is run -----------------------------------------------------------------------

Fuel = Annotated[
    int | None,
    typer.Option("--fuel", metavar="N", min=1, help="Limit of ticks of a program (default 10,000,000,000)."),
]
MaxDepth = Annotated[
    int | None,
    typer.Option("--max-depth", metavar="N", min=1, help="Limit of nested calls (default 1048576)."),
]
MaxSize = Annotated[
    int | None,
    typer.Option(
        "--max-size",
        metavar="N",
        min=1,
        help="Limit of items in a list, and in proportion of the size of texts and integers "
        "(default 8388608).",
    ),
]
Tier = Annotated[
    str | None,
    typer.Option(
        "--tier",
        metavar="interpreter|direct|auto",
        help="Execution mode; results are identical, only speed differs (default auto).",
    ),
]
Budget = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        metavar="UNIT=N",
        help="Limit what models and agents use, in usd, tokens, calls or seconds; may be repeated.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", metavar="N", min=1, help="Limit of concurrently performed actions (default 8)."),
]
Queue = Annotated[
    bool,
    typer.Option("--queue", help="Wait for the runs that hold the same paths, in order of arrival."),
]
Background = Annotated[
    bool, typer.Option("--background", help="Run without a terminal: print the run's id and return.")
]
Script = Annotated[
    str | None,
    typer.Option(
        "--script",
        metavar="WORLD.yaml",
        help="Take all results from this file instead of executing actions.",
    ),
]
Record = Annotated[
    str | None,
    typer.Option(
        "--record",
        metavar="CASE",
        help="Write a test case of the run: a path, or a name in .loops/tests/.",
    ),
]
OnUnknown = Annotated[
    str | None,
    typer.Option(
        "--on-unknown",
        metavar="rerun|fail|ask",
        help="What to do with an interrupted action: run it again, let it fail, or ask.",
    ),
]
AcceptChanges = Annotated[
    bool,
    typer.Option(
        "--accept-changes", help="Continue with the current text of the program if the run fits into it."
    ),
]
AcceptLoss = Annotated[
    bool,
    typer.Option("--accept-loss", help="Continue from what is left of a journal that was truncated."),
]
Output = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file.")]
