"""Typer declarations of the parameters that several subcommands share.

The heading of an option is the title of its section in the help. Limits of the machine are under ADVANCED.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .completers import *

# In the order of the help; options without a heading come first.
HEADINGS = ("What to run", "Values", "Models", "Limits", "Execution", "Output", "Advanced")
PROGRAM, VALUES, MODELS, LIMITS, EXECUTION, OUTPUT, ADVANCED = HEADINGS


Text = str | None
Texts = list[str] | None
Count = int | None


def option(
    names: str,
    metavar: str,
    help: str,
    heading: str | None = None,
    *,
    complete: Any = None,
    least: int | None = None,
    most: int | None = None,
) -> Any:
    """Declaration of an option.

    Args:
        names: the names, separated by spaces.
        metavar: placeholder of the value; "" for a flag.
        help: description.
        heading: section of the help; None for the first section.
        complete: completer of the value.
        least: minimum of a number.
        most: maximum of a number.
    """
    return typer.Option(
        *names.split(),
        metavar=metavar or None,
        help=help,
        rich_help_panel=heading,
        autocompletion=complete,
        min=least,
        max=most,
    )


def argument(metavar: str, help: str, complete: Any = None) -> Any:
    """Declaration of an argument."""
    return typer.Argument(help=help, metavar=metavar, autocompletion=complete)


_FILE = "A loop's name, or the path of a .yaml, .sexp, .ir or .llb file."

Loop = Annotated[str, argument("LOOP", _FILE, complete_loop)]
LoopToRun = Annotated[Text, argument("LOOP", _FILE, complete_loop)]
Run = Annotated[
    str, argument("RUN", "A run's id or folder, or a loop's name for its last run.", complete_any_run)
]
RunOrCase = Annotated[
    str,
    argument("RUN", "A run's id or folder, a loop's name for its last run, or a case.", complete_case_or_run),
]

# --- compilation --------------------------------------------------------------------------------

_NO_LLM = "Judge slash commands by their exit code, without a model."
Context = Annotated[
    Texts, option("--context", "K=V", "Set a context variable of the loop; may be repeated.", VALUES)
]
Arguments = Annotated[
    Texts, option("--arg", "K=V", "Set a variable of a flow, JSON or text; may be repeated.", VALUES)
]
Declare = Annotated[
    Texts,
    option(
        "--declare",
        "NAME[(X,Y)]",
        "A tool, or `task NAME`, that flows may call, with its parameters if known; may be repeated.",
        VALUES,
    ),
]
NoPreflight = Annotated[
    bool,
    option(
        "--no-preflight",
        "",
        "Start without checking the agents, models and commands of the program.",
        ADVANCED,
    ),
]
NoLlm = Annotated[bool, option("--no-llm", "", _NO_LLM, MODELS)]
Dialect = Annotated[
    Text, option("--dialect", "NAME", "Dialect of loops that name none: `llc` or `little-loops`.", PROGRAM)
]
LlmModel = Annotated[Text, option("--llm-model", "MODEL", "Override the model that judges output.", MODELS)]
MaxIterations = Annotated[
    Count, option("--max-iterations", "N", "Override the loop's limit of iterations.", LIMITS, least=1)
]
MaxExpansions = Annotated[
    Count, option("--max-expansions", "N", "Limit of macro expansions (default 250,000).", ADVANCED, least=1)
]
MaxNesting = Annotated[
    Count,
    option("--max-nesting", "N", "Limit of nested brackets in a flow (default 1,000).", ADVANCED, least=1),
]

# --- execution ----------------------------------------------------------------------------------

Budget = Annotated[
    Texts,
    option(
        "--budget",
        "UNIT=N",
        "Limit the usage of models and agents in usd, tokens, calls or seconds; may be repeated.",
        LIMITS,
    ),
]
Jobs = Annotated[
    Count, option("--jobs", "N", "Limit of concurrently performed actions (default 8).", LIMITS, least=1)
]
Queue = Annotated[
    bool, option("--queue", "", "Wait for runs that lock the same paths, in order of arrival.", EXECUTION)
]
Database = Annotated[
    Text, option("--db", "URL", "The database of the cluster; default: the environment's LLC_DB.", EXECUTION)
]
NoInput = Annotated[
    bool, option("--no-input", "", "Do not ask: a question gets its default, or is an error.", EXECUTION)
]
RunsDatabase = Annotated[
    Text, option("--db", "URL", "Use the runs of this database instead of the project's runs.", EXECUTION)
]
On = Annotated[Text, option("--on", "URL", "Run it on the workers of this database.", EXECUTION)]
Labels = Annotated[
    Texts,
    option("--label", "NAME", "With --on: use only workers with this label; may be repeated.", EXECUTION),
]
Background = Annotated[
    bool, option("--background", "", "Run without a terminal: print the run's id and return.", EXECUTION)
]
Script = Annotated[
    Text,
    option(
        "--script", "WORLD.yaml", "Take all results from this file instead of executing actions.", EXECUTION
    ),
]
OnUnknown = Annotated[
    Text,
    option(
        "--on-unknown",
        "rerun|continue|fail|ask",
        "What to do with an action in doubt: run it again, continue the agent, let it fail, or ask.",
        EXECUTION,
    ),
]
AcceptLoss = Annotated[
    bool, option("--accept-loss", "", "Continue from the remaining events of a truncated journal.", EXECUTION)
]
AcceptChanges = Annotated[
    bool,
    option(
        "--accept-changes", "", "Continue with the changed program if the run can continue in it.", EXECUTION
    ),
]
Fuel = Annotated[
    Count, option("--fuel", "N", "Limit of ticks of a program (default 10,000,000,000).", ADVANCED, least=1)
]
MaxDepth = Annotated[
    Count, option("--max-depth", "N", "Limit of nested calls (default 1048576).", ADVANCED, least=1)
]
MaxSize = Annotated[
    Count,
    option(
        "--max-size",
        "N",
        "Limit of items in a list; sizes of texts and integers are limited in proportion (default 8388608).",
        ADVANCED,
        least=1,
    ),
]
Tier = Annotated[
    Text,
    option(
        "--tier",
        "interpreter|direct|auto",
        "Execution mode; results are identical, only speed differs (default auto).",
        ADVANCED,
    ),
]

# --- output -------------------------------------------------------------------------------------

Json = Annotated[bool, option("--json", "", "Write JSON to stdout.", OUTPUT)]
JsonOutcome = Annotated[
    bool,
    option("--json", "", "Write one JSON object to stdout when the run ends; progress to stderr.", OUTPUT),
]
Quiet = Annotated[bool, option("--quiet -q", "", "Show no progress.", OUTPUT)]
Verbose = Annotated[
    bool, option("--verbose -v", "", "Show more: waits, model calls, reasons, all output.", OUTPUT)
]
Record = Annotated[
    Text,
    option("--record", "CASE", "Write a test case of the run: a path, or a name in .loops/tests/.", OUTPUT),
]
Profile = Annotated[bool, option("--profile", "", "Show a time profile when the run ends.", OUTPUT)]
Flame = Annotated[
    Text,
    option(
        "--flame", "FILE", "Write a flame graph: FILE.json for speedscope, else collapsed stacks.", OUTPUT
    ),
]
Output = Annotated[Text, option("--output -o", "FILE", "Write to a file.", OUTPUT)]
