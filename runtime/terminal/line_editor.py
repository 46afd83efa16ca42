"""Line editor of `llc repl`: multi-line editing, history, completion, colours.

Imported only on a terminal, because the import of `prompt_toolkit` takes 0.1 s. Must not contain: the meaning
of an input (`console`).
"""

from __future__ import annotations

import contextlib
import os.path
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import completion_is_selected, has_completions
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout.processors import HighlightMatchingBracketProcessor
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.styles import Style

from ...frontend.core.forms import FORMS
from ...frontend.core.library import LIBRARY
from ...frontend.sexp.reader import scan
from ..host import environment, files
from .console import COMMANDS, TASK_LINE, Console, Leave, is_complete
from .keys import no_mouse
from .task_line import completions

if TYPE_CHECKING:
    from collections.abc import Callable

PROMPT = "llc> "
_STYLE = Style.from_dict(
    {
        "prompt": "bold",
        "form": "ansimagenta",
        "library": "ansiblue",
        "string": "ansigreen",
        "number": "ansicyan",
        "comment": "ansibrightblack",
        "command": "ansiyellow",
        "matching-bracket.cursor": "bold",
        "matching-bracket.other": "bold underline",
        "completion-menu.completion": "noreverse",
    }
)
# Characters that end a symbol, and so the word to complete.
_DELIMITERS = frozenset(" \t\n()[]{}\"';,`|")


def converse(console: Console) -> None:
    """Read and execute inputs until the user leaves. Raises `Exited` if a program ends the session."""
    prompt: PromptSession[str] = PromptSession(
        history=_history(),
        completer=_Names(console),
        complete_style=CompleteStyle.COLUMN,
        complete_while_typing=False,
        lexer=_Colors(),
        style=_STYLE,
        color_depth=None if console.has_color else ColorDepth.DEPTH_1_BIT,
        input_processors=[HighlightMatchingBracketProcessor(chars="()[]")],
        key_bindings=_keys(),
        multiline=True,
        prompt_continuation=lambda width, number, wraps: " " * width,
        enable_open_in_editor=True,
    )
    while True:
        try:
            text = prompt.prompt([("class:prompt", PROMPT)])
        except KeyboardInterrupt:
            continue  # Ctrl-C drops the typed text
        except EOFError:
            return
        try:
            console.enter(text)
        except Leave:
            return


def _keys() -> KeyBindings:
    keys = no_mouse()

    @keys.add("enter", filter=~completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        """Run a complete input; otherwise add an indented line."""
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n" + " " * indentation(buffer.document.text_before_cursor))

    @keys.add("enter", filter=has_completions & completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        """Accept the completion."""
        event.current_buffer.complete_state = None

    return keys


def indentation(text: str) -> int:
    """The indentation of the next line: two columns from the innermost open bracket."""
    open_at: list[int] = []
    column = 0
    for token in scan(text):
        if token.kind == "open":
            open_at.append(column)
        elif token.kind == "close" and open_at:
            open_at.pop()
        lines = token.text.split("\n")
        column = column + len(token.text) if len(lines) == 1 else len(lines[-1])
    return open_at[-1] + 2 if open_at else 0


class _Names(Completer):
    """Completer of commands (at the beginning of an input), task lines, files and defined names."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        start = len(before)
        while start and before[start - 1] not in _DELIMITERS:
            start -= 1
        word = before[start:]
        if not before[:start].strip() and word.startswith(":"):
            for command in COMMANDS.values():
                if command.name.startswith(word):
                    yield Completion(command.name, -len(word), display_meta=command.doc)
            return
        if "/task".startswith(before.strip()) and before.strip():
            yield Completion("/task ", -len(before.strip()), display_meta="Execute a task, show its result.")
            return
        if line := TASK_LINE.match(before):
            toplevel = self._console.session.toplevel
            for candidate, start in completions(before[line.end() :], toplevel.declared, toplevel.defined):
                yield Completion(candidate, start)
            return
        if before.startswith(":load "):
            yield from _files(before[6:].lstrip())
            return
        if not word:
            return
        toplevel = self._console.session.toplevel
        for name in toplevel.names():
            if name.startswith(word):
                meaning = toplevel.find(name)
                about = "" if meaning is None else meaning.doc or meaning.usage
                yield Completion(name, -len(word), display_meta=about)


def _files(start: str) -> Iterable[Completion]:
    folder, _, prefix = start.rpartition("/")
    with contextlib.suppress(OSError):
        for file in sorted(files.listdir(os.path.expanduser(folder + "/" if folder else "."))):
            if file.startswith(prefix) and (prefix or not file.startswith(".")):
                is_folder = files.isdir(os.path.join(os.path.expanduser(folder), file))
                if is_folder or file.endswith(".sexp"):
                    yield Completion(file + ("/" if is_folder else ""), -len(prefix))


class _Colors(Lexer):
    """Colours tokens by kind; the name of a form only at the head of a list."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        lines: list[StyleAndTextTuples] = [[]]
        is_head = False
        for token in scan(document.text):
            style = _style(token.kind, token.text, is_head)
            if token.kind != "blank":
                is_head = token.kind == "open"
            for number, part in enumerate(token.text.split("\n")):
                if number:
                    lines.append([])
                lines[-1].append((style, part))
        if document.text.startswith(":"):
            name = document.text.split(maxsplit=1)[0]
            rest = "".join(part for _, part, *_ in lines[0])[len(name) :]
            lines[0] = [("class:command", name), ("", rest)]
        return lambda number: lines[number] if number < len(lines) else []


def _style(kind: str, text: str, is_head: bool) -> str:
    if kind in ("comment", "block-comment", "datum-comment"):
        return "class:comment"
    if kind != "atom":
        return ""
    if text[0] == '"':
        return "class:string"
    if text[0].isdigit() or (text[0] in "+-." and text[1:2].isdigit()):
        return "class:number"
    if is_head and text in FORMS:
        return "class:form"
    return "class:library" if text in LIBRARY else ""


# --- history ----------------------------------------------------------------------------------


def history_file() -> str:
    """The path of the history file: `llc/repl_history` in the user's state folder."""
    folder = environment.environ.get("XDG_STATE_HOME") or ""
    if not os.path.isabs(folder):
        folder = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(folder, "llc", "repl_history")


class _PrivateHistory(FileHistory):
    """A history file that only its user can read; write errors are ignored."""

    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):
            super().store_string(string)


def _history() -> History:
    path = history_file()
    try:
        files.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = files.open_handle(path, files.O_RDWR | files.O_CREAT | files.O_APPEND, 0o600)
        try:
            files.fchmod(descriptor, 0o600)
        finally:
            files.close(descriptor)
    except OSError:
        return InMemoryHistory()
    return _PrivateHistory(path)
