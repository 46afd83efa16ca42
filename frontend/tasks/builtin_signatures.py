"""Signatures of the built-in tools, which `runtime/effects/tools/builtin_tools.py` and the shell perform."""

from __future__ import annotations

from .signature import Parameter, Signature

_COMMAND = (
    Parameter("command", "string", doc="The shell command."),
    Parameter("timeout", "number", False, doc="Timeout in seconds."),
    Parameter("cwd", "string", False, doc="Working folder of the command."),
)

_AIDER = (
    Parameter("file_context", "list", False, doc="The files that aider may edit."),
    Parameter("model", "string", False, doc="The model of aider."),
    Parameter("timeout", "number", False, doc="Timeout in seconds."),
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
        doc="The contents of files: a list of {path, content, size}, or {path, content, error} for a file "
        "that cannot be read.",
    ),
    Signature(
        "system:list_directory", "tool",
        (
            Parameter("directory_path", "string", False, ".", doc="The folder."),
            Parameter("max_entries", "integer", False, 10_000, doc="More entries are an error."),
        ),
        "tool",
        doc="The names in a folder, sorted; names of folders end in `/`.",
    ),
    Signature(
        "system:write_file", "tool",
        (
            Parameter("file_path", "string", doc="The file; missing folders are created."),
            Parameter("content", "string", doc="The new content."),
            Parameter("overwrite", "boolean", False, True, doc="Whether an existing file may be replaced."),
        ),
        "tool",
        doc="Write a file atomically; {path, bytes, created}.",
    ),
    Signature(
        "aider:automatic", "tool",
        (
            Parameter("prompt", "string", doc="The instruction for aider."),
            *_AIDER,
        ),
        "tool",
        doc="Run aider without questions; a TaskResult.",
    ),
    Signature(
        "aider:interactive", "tool",
        (
            Parameter("query", "string", False, doc="The task; it is shown before aider starts."),
            *_AIDER,
        ),
        "tool",
        doc="Run aider in the terminal until the user leaves it; a TaskResult.",
    ),
    Signature(
        "system:get_context", "tool",
        (
            Parameter("query", "any", False, doc="The query: words, names, a question."),
            Parameter("history", "any", False, doc="The conversation so far; its words count less."),
            Parameter("inputs", "any", False, doc="Values by name; their words count less."),
            Parameter(
                "matching_strategy", "string", False, choices=("content", "metadata"),
                doc="Whether contents, or names and definitions of files are searched.",
            ),
            Parameter("limit", "integer", False, doc="Maximum number of files; default: 10."),
            Parameter("template_description", "any", False, doc="The description of a task."),
            Parameter("template_type", "any", False, doc="The type of a task."),
            Parameter("template_subtype", "any", False, doc="The subtype of a task."),
            Parameter(
                "context_relevance", "map", False,
                doc="Which inputs are part of the query: name to true or false.",
            ),
            Parameter("inherited_context", "any", False, doc="As `history`."),
            Parameter("previous_outputs", "any", False, doc="As `history`."),
            Parameter(
                "fresh_context", "string", False, choices=("enabled", "disabled"),
                doc="`disabled`: there is no search.",
            ),
            Parameter("rerank", "boolean", False, doc="Whether a model ranks the files."),
            Parameter("model", "string", False, doc="The model that ranks the files."),
            Parameter("timeout", "number", False, doc="Timeout in seconds."),
            Parameter("template_name", "any", False, doc="The name of a task."),
        ),
        "context",
        doc="Find files of the project: a list of their paths, best first.",
    ),
)  # fmt: skip
SYSTEM_TOOLS = {row.name: row for row in ROWS}
# The seeds' form.
SYSTEM_TOOLS["get_context"] = SYSTEM_TOOLS["system:get_context"]
