"""The Typer declarations of the parameters that several subcommands share.

An option's heading is that of its section in the help; machine limits are under ADVANCED, the last one.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .completers import complete_amount as complete_amount
from .completers import complete_answer as complete_answer
from .completers import complete_any_run as complete_any_run
from .completers import complete_budget_action as complete_budget_action
from .completers import complete_case as complete_case
from .completers import complete_case_or_run as complete_case_or_run
from .completers import complete_db_action as complete_db_action
from .completers import complete_ledger as complete_ledger
from .completers import complete_loop as complete_loop
from .completers import complete_loop_or_run as complete_loop_or_run
from .completers import complete_question as complete_question
from .completers import complete_ready_loop as complete_ready_loop
from .completers import complete_run as complete_run
from .completers import complete_server as complete_server
from .completers import complete_step as complete_step
from .completers import complete_tool as complete_tool

# In the order of the help; options without a heading are before all.
HEADINGS = ("What to run", "Values", "Models", "Limits", "Execution", "Output", "Advanced")
PROGRAM, VALUES, MODELS, LIMITS, EXECUTION, OUTPUT, ADVANCED = HEADINGS


def option(heading: str, names: str, metavar: str, help: str, least: int | None = None) -> Any:
    """An option under a heading. least: the smallest number that it takes."""
    return typer.Option(
        *names.split(), metavar=metavar or None, help=help, min=least, rich_help_panel=heading or None
    )


def argument(metavar: str, help: str, complete: Any) -> Any:
    return typer.Argument(help=help, metavar=metavar, autocompletion=complete)


_FILE = "A loop's name, or the path of a .yaml, .sexp, .ir or .llb file."

Loop = Annotated[str, argument("LOOP", _FILE, complete_loop)]
LoopToRun = Annotated[str | None, argument("LOOP", _FILE, complete_loop)]
Run = Annotated[
    str, argument("RUN", "A run's id or folder, or a loop's name for its last run.", complete_any_run)
]
RunOrCase = Annotated[
    str,
    argument("RUN", "A run's id or folder, a loop's name for its last run, or a case.", complete_case_or_run),
]
RunOrLoop = Annotated[
    str, argument("RUN|LOOP", "A run's id, or a loop's name for its last run.", complete_any_run)
]
UnfinishedRun = Annotated[str, argument("RUN|LOOP", "A run's id, or a loop's name.", complete_run)]

_Flag = bool
_Text = str | None
_Count = int | None
_Many = list[str] | None

# --- what a program is compiled to --------------------------------------------------------------

_NO_LLM = "Judge slash commands by their exit code, without a model."
Context = Annotated[
    _Many, option(VALUES, "--context", "K=V", "Set a context variable of the loop; may be repeated.")
]
Arguments = Annotated[
    _Many, option(VALUES, "--arg", "K=V", "Set a variable of a flow, JSON or text; may be repeated.")
]
Declare = Annotated[
    _Many,
    option(
        VALUES,
        "--declare",
        "NAME[(X,Y)]",
        "A tool, or `task NAME`, that flows may call, with its parameters if known; may be repeated.",
    ),
]
NoPreflight = Annotated[
    _Flag,
    option(
        ADVANCED,
        "--no-preflight",
        "",
        "Start without checking the agents, models and commands of the program.",
    ),
]
NoLlm = Annotated[_Flag, option(MODELS, "--no-llm", "", _NO_LLM)]
LlmModel = Annotated[_Text, option(MODELS, "--llm-model", "MODEL", "Override the model that judges output.")]
MaxIterations = Annotated[
    _Count, option(LIMITS, "--max-iterations", "N", "Override the loop's limit of iterations.", 1)
]
MaxExpansions = Annotated[
    _Count, option(ADVANCED, "--max-expansions", "N", "Limit of macro expansions (default 250,000).", 1)
]
MaxNesting = Annotated[
    _Count, option(ADVANCED, "--max-nesting", "N", "Limit of nested brackets in a flow (default 1,000).", 1)
]

# --- how a program is run -----------------------------------------------------------------------

Budget = Annotated[
    _Many,
    option(
        LIMITS,
        "--budget",
        "UNIT=N",
        "Limit what models and agents use, in usd, tokens, calls or seconds; may be repeated.",
    ),
]
Jobs = Annotated[
    _Count, option(LIMITS, "--jobs", "N", "Limit of concurrently performed actions (default 8).", 1)
]
Queue = Annotated[
    _Flag,
    option(EXECUTION, "--queue", "", "Wait for the runs that hold the same paths, in order of arrival."),
]
Database = Annotated[
    _Text,
    option(EXECUTION, "--db", "URL", "The database of the cluster; default: the environment's LLC_DB."),
]
NoInput = Annotated[
    _Flag,
    option(EXECUTION, "--no-input", "", "Ask nobody: a question has its default, or is an error."),
]
Background = Annotated[
    _Flag, option(EXECUTION, "--background", "", "Run without a terminal: print the run's id and return.")
]
Script = Annotated[
    _Text,
    option(
        EXECUTION, "--script", "WORLD.yaml", "Take all results from this file instead of executing actions."
    ),
]
OnUnknown = Annotated[
    _Text,
    option(
        EXECUTION,
        "--on-unknown",
        "rerun|continue|fail|ask",
        "What to do with an interrupted action: run it again, continue the agent, let it fail, or ask.",
    ),
]
AcceptLoss = Annotated[
    _Flag,
    option(EXECUTION, "--accept-loss", "", "Continue from what is left of a journal that was truncated."),
]
AcceptChanges = Annotated[
    _Flag,
    option(
        EXECUTION,
        "--accept-changes",
        "",
        "Continue with the current text of the program if the run fits into it.",
    ),
]
Fuel = Annotated[
    _Count, option(ADVANCED, "--fuel", "N", "Limit of ticks of a program (default 10,000,000,000).", 1)
]
MaxDepth = Annotated[
    _Count, option(ADVANCED, "--max-depth", "N", "Limit of nested calls (default 1048576).", 1)
]
MaxSize = Annotated[
    _Count,
    option(
        ADVANCED,
        "--max-size",
        "N",
        "Limit of items in a list, and in proportion of the size of texts and integers (default 8388608).",
        1,
    ),
]
Tier = Annotated[
    _Text,
    option(
        ADVANCED,
        "--tier",
        "interpreter|direct|auto",
        "Execution mode; results are identical, only speed differs (default auto).",
    ),
]

# --- output -------------------------------------------------------------------------------------

Json = Annotated[_Flag, option(OUTPUT, "--json", "", "Write JSON to stdout.")]
JsonOutcome = Annotated[
    _Flag,
    option(OUTPUT, "--json", "", "Write one JSON object to stdout when the run ends; progress to stderr."),
]
Quiet = Annotated[_Flag, option(OUTPUT, "--quiet -q", "", "Show no progress.")]
Verbose = Annotated[
    _Flag, option(OUTPUT, "--verbose -v", "", "Show more: waits, model calls, reasons, all output.")
]
Record = Annotated[
    _Text,
    option(OUTPUT, "--record", "CASE", "Write a test case of the run: a path, or a name in .loops/tests/."),
]
Profile = Annotated[_Flag, option(OUTPUT, "--profile", "", "Show a time profile when the run ends.")]
Flame = Annotated[
    _Text,
    option(
        OUTPUT, "--flame", "FILE", "Write a flame graph: FILE.json for speedscope, else collapsed stacks."
    ),
]
Output = Annotated[_Text, option(OUTPUT, "--output -o", "FILE", "Write to a file.")]
