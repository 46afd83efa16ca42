"""Signatures of the built-in tools, which `runtime/effects/tools/builtin_tools.py` and the shell perform."""

from __future__ import annotations

from .signature import Parameter, Signature

_COMMAND = (
    Parameter("command", "string", doc="The command, as a shell reads it."),
    Parameter("timeout", "number", False, doc="Seconds it may take."),
    Parameter("cwd", "string", False, doc="The folder to run it in."),
)

_AIDER = (
    Parameter("file_context", "list", False, doc="The files it may edit."),
    Parameter("model", "string", False, doc="The model it works with."),
    Parameter("timeout", "number", False, doc="Seconds it may take."),
)

ROWS = (
    Signature(
        "system:execute_shell_command", "tool", _COMMAND, "shell",
        doc="Run a command in a shell; {stdout, stderr, exit_code, error?}.",
    ),
    Signature(
        "system:run_script", "tool", _COMMAND, "shell",
        doc="The same as `system:execute_shell_command`, for a script of the project.",
    ),
    Signature(
        "system:read_files", "tool",
        (
            Parameter("file_paths", "list", doc="The files, in order."),
            Parameter("max_bytes", "integer", False, 1 << 20, doc="A larger file is not read."),
        ),
        "tool",
        doc="The contents of files: a list of {path, content, size} or, where there is none, {path, content, "
        "error}, whose content says so.",
    ),
    Signature(
        "system:list_directory", "tool",
        (
            Parameter("directory_path", "string", False, ".", doc="The folder."),
            Parameter("max_entries", "integer", False, 10_000, doc="More of them are an error."),
        ),
        "tool",
        doc="The names in a folder, sorted; those of folders end in `/`.",
    ),
    Signature(
        "system:write_file", "tool",
        (
            Parameter("file_path", "string", doc="The file; folders on the way are made."),
            Parameter("content", "string", doc="What it holds from then on."),
            Parameter("overwrite", "boolean", False, True, doc="Whether it may replace a file."),
        ),
        "tool",
        doc="Write a file, whole or not at all; {path, bytes, created}.",
    ),
    Signature(
        "aider:automatic", "tool",
        (
            Parameter("prompt", "string", doc="What aider is to do."),
            *_AIDER,
        ),
        "tool",
        doc="Have aider do something, without asking anybody; a TaskResult.",
    ),
    Signature(
        "aider:interactive", "tool",
        (
            Parameter("query", "string", False, doc="What it is about; it is shown before aider begins."),
            *_AIDER,
        ),
        "tool",
        doc="Hand the terminal over to aider until it is left; a TaskResult.",
    ),
    Signature(
        "system:get_context", "tool",
        (
            Parameter("query", "any", False, doc="What is looked for: words, names, a question."),
            Parameter("history", "any", False, doc="What was said before; its words count less."),
            Parameter("inputs", "any", False, doc="Values by name; the words in them count less."),
            Parameter(
                "matching_strategy", "string", False, choices=("content", "metadata"),
                doc="Whether files are found by what they hold or by what they are called and define.",
            ),
            Parameter("limit", "integer", False, doc="How many files at most; 10."),
            Parameter("template_description", "any", False, doc="What a task is for."),
            Parameter("template_type", "any", False, doc="The kind of task."),
            Parameter("template_subtype", "any", False, doc="The kind of task, more closely."),
            Parameter("context_relevance", "map", False, doc="Which inputs matter: name to true or false."),
            Parameter("inherited_context", "any", False, doc="As `history`."),
            Parameter("previous_outputs", "any", False, doc="As `history`."),
            Parameter(
                "fresh_context", "string", False, choices=("enabled", "disabled"),
                doc="`disabled`: nothing is looked for.",
            ),
            Parameter("rerank", "boolean", False, doc="Whether a model puts the best first."),
            Parameter("model", "string", False, doc="Which model does that."),
            Parameter("timeout", "number", False, doc="Seconds it may take."),
            Parameter("template_name", "any", False, doc="The name of a task."),
        ),
        "context",
        doc="Find files of the project: a list of their paths, best first.",
    ),
)  # fmt: skip
SYSTEM_TOOLS = {row.name: row for row in ROWS}
# The seeds' form.
SYSTEM_TOOLS["get_context"] = SYSTEM_TOOLS["system:get_context"]
