"""The tools that are built in: their signatures. `runtime/system_tools.py` and the shell perform them."""

from __future__ import annotations

from .declarations import Parameter, Signature

_COMMAND = (
    Parameter("command", "string", doc="The command, as a shell reads it."),
    Parameter("timeout", "number", False, doc="Seconds it may take."),
    Parameter("cwd", "string", False, doc="The folder to run it in."),
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
)  # fmt: skip
SYSTEM_TOOLS = {row.name: row for row in ROWS}
