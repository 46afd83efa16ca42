"""Registry of the tools and tasks of a project, looked up by name and read on demand.

`.loops/tools.yaml` and `.loops/tasks/*.xml` are read only if a program uses a name that has no other meaning.
Errors in a file are reported to a program only if the file may declare a name that the program uses. Tasks
that a program defines (`defatom`) have a scope and are not in the registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from posixpath import join

from ...ir.compile_options import LIBRARY_FOLDER
from ...ir.diagnostics import CompileError, Diagnostic, labelled
from ...ir.python_internals import late_pattern
from ...ir.records import frozen
from ...ir.spans import Source
from ...stdlib import read_text
from ..source.files import is_file, list_folder, path_exists, read_source, text_source
from .builtin_signatures import SYSTEM_TOOLS
from .mcp_servers import PREFIX, McpTools
from .names import is_name, is_parameter_name, spellings
from .signature import Parameter, Signature

TOOLS_FILE = "tools.yaml"
TASKS_FOLDER = "tasks"
TASK_SUFFIX = ".xml"
# The built-in tasks by name, with their files in `stdlib/`.
LIBRARY_TASKS = {
    "user:analyze-iteration-structured": "analyze-iteration.xml",
    "user:plan-development": "plan-development.xml",
    "user:evaluate-result": "evaluate-result.xml",
}


@frozen
class ProjectDeclarations:
    """Declarations in the files of a project, with diagnostics and sources."""

    tools: tuple[Signature, ...] = ()
    tasks: tuple[Signature, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    sources: tuple[Source, ...] = ()


class TaskRegistry:
    """The tools and tasks that one program can call.

    folder: the project's `.loops`; None for a program without a project.
    declarations: the values of `--declare`.
    """

    def __init__(self, folder: str | None = None, declarations: Iterable[str] = ()) -> None:
        self._folder = folder
        self._declared: dict[str, Signature] = {}
        self._project: ProjectDeclarations | None = None
        # The looked-up names, with whether each was found.
        self._lookups: dict[str, bool] = {}
        self._tools: dict[str, Signature] = dict(SYSTEM_TOOLS)
        self._tasks: dict[str, Signature] = {}
        self._hidden: dict[str, Signature] = {}
        self.mcp = McpTools(folder)
        self.wrong: list[Diagnostic] = []
        for text in declarations:
            try:
                signature = parse_declaration(text)
            except ValueError as error:
                self.wrong.append(Diagnostic("bad-option", f"--declare `{text[:100]}`: {error}"))
            else:
                self._declared[signature.name] = signature

    @property
    def is_broken(self) -> bool:
        """Whether the files of the project have errors."""
        return self._project is not None and any(found.is_error for found in self._project.diagnostics)

    @property
    def found(self) -> ProjectDeclarations | None:
        """The declarations in the project's files; None if the files were not read."""
        return self._project

    def findings(self) -> tuple[Diagnostic, ...]:
        """The diagnostics of the project's files that concern the program.

        If a name was not found, these are all; otherwise those of the files that contain a looked-up name.
        """
        if self._project is None:
            return ()
        if not all(self._lookups.values()):
            return self._project.diagnostics
        words = {spelling for name in self._lookups for spelling in spellings(name)}
        texts = {source.path: source.text or "" for source in self._project.sources}
        near = {path for path, text in texts.items() if any(word in text for word in words)}
        return tuple(found for found in self._project.diagnostics if found.span and found.span.path in near)

    def find(self, name: str, own: Signature | None = None) -> Signature | None:
        """Find the tool, the program's `own` task, or the project's task of a name, in this order."""
        found = self._find(name, own)
        # The tools of MCP servers are not declared in the project's files.
        self._lookups[name] = found is not None or name.startswith(PREFIX)
        return found

    def _find(self, name: str, own: Signature | None) -> Signature | None:
        self._load()
        for spelling in spellings(name):
            tool = self._tools.get(spelling)
            if tool is not None:
                if own is not None:
                    self._hidden[tool.name] = own
                return tool
        if own is not None:
            return own
        for spelling in spellings(name):
            if spelling in self._tasks:
                return self._tasks[spelling]
        if name.startswith(PREFIX):
            return self._declared.get(name) or self.mcp.find(name)
        return self._declared.get(name) or library_task(name)

    def hidden_by(self, tool: Signature) -> Iterator[Signature]:
        """The task that a tool of the same name hides."""
        if not tool.is_task:
            other = self._hidden.get(tool.name) or self._tasks.get(tool.name)
            if other is not None:
                yield other

    def names(self) -> list[str]:
        self._load()
        offered = [tool.name for tool in self.mcp.signatures()]
        return [*self._tools, *offered, *self._tasks, *self._declared, *LIBRARY_TASKS]

    def signatures(self) -> list[Signature]:
        """All declarations, tools first, each under its full name."""
        self._load()
        own = [task for name in LIBRARY_TASKS if (task := library_task(name)) is not None]
        tools = [*self._tools.values(), *self.mcp.signatures()]
        rows = [*tools, *self._tasks.values(), *self._declared.values(), *own]
        return list({row.name: row for row in reversed(rows)}.values())[::-1]

    def _load(self) -> None:
        if self._project is None:
            self._project = read_project(self._folder) if self._folder is not None else ProjectDeclarations()
            self._tools.update((tool.name, tool) for tool in self._project.tools)
            self._tasks.update((task.name, task) for task in self._project.tasks)


@cache
def library_task(name: str) -> Signature | None:
    """The built-in task of this name. A project's task of the same name takes precedence."""
    file = LIBRARY_TASKS.get(name)
    if file is None:
        return None
    from .task_file import read_task

    source = text_source(read_text(file), f"{LIBRARY_FOLDER}{file}")
    task, found = read_task(source)
    if task is None:
        raise CompileError(found, [source])
    return task


def project_files(folder: str) -> list[str]:
    """The files of a project that declare tools and tasks, in order."""
    tools = join(folder, TOOLS_FILE)
    tasks = join(folder, TASKS_FOLDER)
    names = [name for name in list_folder(tasks) if name.endswith(TASK_SUFFIX) and not name.startswith(".")]
    return [tools] * path_exists(tools) + [join(tasks, name) for name in names]


def read_project(folder: str) -> ProjectDeclarations:
    """Read the files of a project that declare tools and tasks."""
    tools: list[Signature] = []
    tasks: dict[str, Signature] = {}
    wrong: list[Diagnostic] = []
    sources: list[Source] = []
    for path in project_files(folder):
        if not is_file(path):
            wrong.append(Diagnostic("unreadable-file", f"`{path}` is not a file"))
            continue
        try:
            source = read_source(path)
        except CompileError as error:
            wrong += error.diagnostics
            sources += error.sources
            continue
        sources.append(source)
        if path.endswith(TASK_SUFFIX):
            from .task_file import read_task

            task, found = read_task(source)
            wrong += found
            if task is not None and task.name in tasks:
                first = tasks[task.name]
                message = f"the task `{task.name}` is defined twice"
                wrong.append(
                    Diagnostic(
                        "repeated-task",
                        message,
                        task.span,
                        related=labelled(first.span, "first defined here"),
                    )
                )
            elif task is not None:
                tasks[task.name] = task
        else:
            from .tools_file import read_tools

            tools, found = read_tools(source)
            wrong += found
    return ProjectDeclarations(tuple(tools), tuple(tasks.values()), tuple(wrong), tuple(sources))


_DECLARED = late_pattern(r"\s*(?:(?P<kind>tool|task)\s+)?(?P<name>[^\s(]+)\s*(?:\((?P<order>[^()]*)\))?\s*")


def parse_declaration(text: str) -> Signature:
    """Parse the value of `--declare`: `name`, `name(x,y)` or `task name(x,y)`.

    Raises ValueError with the reason for any other text.
    """
    found = _DECLARED.fullmatch(text)
    if found is None or not is_name(found["name"]):
        raise ValueError("write a name, and its parameters in parentheses if known: math:add(x,y)")
    parameters = None
    if found["order"] is not None:
        names = [name.strip() for name in found["order"].split(",")] if found["order"].strip() else []
        for name in names:
            if not is_parameter_name(name):
                raise ValueError(f"`{name}` cannot be the name of a parameter")
        if len(set(names)) < len(names):
            raise ValueError("a parameter occurs twice")
        parameters = tuple(Parameter(name) for name in names)
    kind = found["kind"] or "tool"
    return Signature(found["name"], kind, parameters, kind)
