"""Menus and input lines in a terminal, built on `prompt_toolkit`.

Imported only for a question, because the library takes long to import. A terminal without cursor control
(`TERM=dumb`) gets numbered lists. Ctrl-C raises KeyboardInterrupt, Ctrl-D raises EOFError.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style
from prompt_toolkit.validation import ValidationError, Validator

from ..host import environment
from ..host.screen import Screen
from ..terminal.keys import no_mouse
from .wizard import Check, Choice

_STYLE = Style.from_dict(
    {"question": "bold", "current": "ansicyan", "answer": "ansigreen", "hint": "ansibrightblack"}
)


class Menus:
    """An `Asker` on the terminal of standard input and output."""

    def __init__(self) -> None:
        self._screen = Screen(sys.stdout)
        self._depth = None if self._screen.color else ColorDepth.DEPTH_1_BIT
        self._is_plain = environment.environ.get("TERM", "dumb") in ("dumb", "")

    def tell(self, text: str) -> None:
        self._screen.write(text + "\n")

    def choose(self, question: str, choices: Sequence[Choice]) -> Any:
        if self._is_plain:
            return choices[self._number(question, choices)].value
        return choices[self._menu(question, choices, None)[0]].value

    def choose_many(self, question: str, choices: Sequence[Choice]) -> list[Any]:
        if self._is_plain:
            indices = self._numbers(question, choices)
        else:
            indices = self._menu(question, choices, set())
        return [choices[i].value for i in indices]

    def text(self, question: str, default: str = "", check: Check | None = None) -> str:
        if self._is_plain:
            hint = f" (Enter: {default})" if default else ""
            return self._line(f"{question}{hint}\n> ", default, check)
        prompt: StyleAndTextTuples = [("class:question", question), ("", "\n> ")]
        return self._prompt(prompt, check, default)

    def confirm(self, question: str, default: bool = True) -> bool:
        hint = "[Y/n]" if default else "[y/N]"
        words = {"": default, "y": True, "yes": True, "n": False, "no": False}

        def check(text: str) -> str | None:
            return None if text.lower() in words else "enter y or n"

        if self._is_plain:
            return words[self._line(f"{question} {hint} ", "", check).lower()]
        prompt: StyleAndTextTuples = [("class:question", question), ("", f" {hint} ")]
        return words[self._prompt(prompt, check).lower()]

    def _prompt(self, prompt: StyleAndTextTuples, check: Check | None, default: str = "") -> str:
        """Read a line; Enter alone returns the default, which is shown as a placeholder."""
        session: PromptSession[str] = PromptSession(
            style=_STYLE,
            color_depth=self._depth,
            validator=_CheckValidator(check, default),
            validate_while_typing=False,
            key_bindings=_prompt_keys(),
        )
        hint: StyleAndTextTuples = [("class:hint", default)]
        return session.prompt(prompt, placeholder=hint).strip() or default

    def _line(self, prompt: str, default: str, check: Check | None) -> str:
        while True:
            text = input(prompt).strip() or default
            problem = check(text) if check is not None else None
            if problem is None:
                return text
            self.tell(problem)

    # --- menus ------------------------------------------------------------------------------------

    def _menu(self, question: str, choices: Sequence[Choice], marked: set[int] | None) -> list[int]:
        """Show a menu; return the indices of the chosen entries.

        marked: initially marked entries of a menu with several answers; None for a menu with one answer.
        """
        state = _MenuState(marked, len(choices))
        control = FormattedTextControl(
            lambda: _lines(question, choices, state), focusable=True, show_cursor=False
        )
        window = Window(control, dont_extend_height=True, wrap_lines=True)
        application: Application[list[int]] = Application(
            layout=Layout(HSplit([window])),
            key_bindings=_menu_keys(state),
            style=_STYLE,
            color_depth=self._depth,
            erase_when_done=True,
        )
        chosen = application.run()
        answer = ", ".join(choices[i].label for i in chosen) or "nothing"
        self._screen.write(f"{question}\n> {self._screen.paint(answer, 'green')}\n")
        return chosen

    def _number(self, question: str, choices: Sequence[Choice]) -> int:
        self.tell(_numbered(question, choices))

        def check(text: str) -> str | None:
            return None if _index(text, len(choices)) is not None else f"enter 1 to {len(choices)}"

        return _index(self.text("Which one?", "1", check), len(choices)) or 0

    def _numbers(self, question: str, choices: Sequence[Choice]) -> list[int]:
        self.tell(_numbered(question, choices))

        def check(text: str) -> str | None:
            is_valid = all(_index(word, len(choices)) is not None for word in text.replace(",", " ").split())
            return None if is_valid else f"enter numbers from 1 to {len(choices)}"

        answer = self.text("Which ones? Separate numbers by spaces.", "", check)
        return sorted({_index(word, len(choices)) or 0 for word in answer.replace(",", " ").split()})


class _MenuState:
    def __init__(self, marked: set[int] | None, count: int) -> None:
        self.current = 0
        self.marked = marked
        self.count = count

    def move(self, by: int) -> None:
        self.current = (self.current + by) % self.count

    def mark(self) -> None:
        if self.marked is not None:
            self.marked ^= {self.current}


def _lines(question: str, choices: Sequence[Choice], state: _MenuState) -> StyleAndTextTuples:
    hint = "↑↓ Enter" if state.marked is None else "↑↓, space marks, Enter"
    lines: StyleAndTextTuples = [("class:question", question), ("class:hint", f"  ({hint})\n")]
    for i, choice in enumerate(choices):
        if state.marked is None:
            mark = "●" if i == state.current else "○"
        else:
            mark = "☑" if i in state.marked else "☐"
        style = "class:current" if i == state.current else ""
        arrow = "›" if i == state.current else " "
        lines.append((style, f"{arrow} {mark} {choice.label}\n"))
    return lines


def _menu_keys(state: _MenuState) -> KeyBindings:
    keys = no_mouse()

    def on(*names: str) -> Callable[[Callable[[KeyPressEvent], None]], None]:
        def bind(handler: Callable[[KeyPressEvent], None]) -> None:
            for name in names:
                keys.add(name)(handler)

        return bind

    on("up", "k", "c-p")(lambda event: state.move(-1))
    on("down", "j", "c-n", "tab")(lambda event: state.move(1))
    on("space")(lambda event: state.mark())

    @on("enter")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result=[state.current] if state.marked is None else sorted(state.marked))

    @on("c-c", "<sigint>")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=KeyboardInterrupt())

    @on("c-d")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=EOFError())

    for digit in "123456789":

        @on(digit)
        def _(event: KeyPressEvent) -> None:
            state.current = min(int(event.data), state.count) - 1

    return keys


def _prompt_keys() -> KeyBindings:
    """Key binding: Ctrl-D leaves the prompt even if the line is not empty."""
    keys = no_mouse()

    @keys.add("c-d", eager=True)
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=EOFError())

    return keys


def _numbered(question: str, choices: Sequence[Choice]) -> str:
    return "\n".join([question, *(f"  {i}. {choice.label}" for i, choice in enumerate(choices, 1))])


def _index(text: str, count: int) -> int | None:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= count):
        return None
    return int(text) - 1


class _CheckValidator(Validator):
    def __init__(self, check: Check | None, default: str) -> None:
        self._check = check
        self._default = default

    def validate(self, document: Document) -> None:
        text = document.text.strip() or self._default
        problem = self._check(text) if self._check is not None else None
        if problem is not None:
            raise ValidationError(cursor_position=len(document.text), message=problem)
