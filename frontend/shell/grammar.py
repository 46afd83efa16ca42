"""Grammar of shell commands: nesting, words, reserved words.

Owns the grammar that determines which `)` closes which construct and which word a variable belongs to.
Receives characters only through `Frame.add`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .expansions import HOLE
from .hazards import UncertainParse

# Limit of nesting, deeper than a person writes; deeper text is refused.
MAX_DEPTH = 100

# Reserved words that are followed by a command, and reserved words that close a compound command.
KEYWORDS = frozenset({"if", "then", "elif", "else", "while", "until", "do", "{", "!", "time", "coproc"})
_CLOSERS = frozenset({"fi", "done", "}"})
DECLARERS = frozenset({"declare", "typeset", "local", "export", "readonly"})
OPERATOR = re.compile(r"&>>|&>|>&|>>|>\||<<<|<<-|<<|<&|<>|&&|\|\||\|&|;;&|;;|;&|[<>;&|()]")
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^\]]*\])?\+?=")


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Frame:
    """One level of nesting, with its current simple command.

    kind: "list" (the text, a subshell, a function's parentheses), "substitution" (`$( … )` and
        `<( … )`), "array", "test" (`[[ … ]]`), "case", "double" (double quotes; its words belong to the
        enclosing frame).
    """

    __slots__ = ("bare", "command", "depth", "holes", "kind", "name", "parts", "phase", "redirect", "words")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.words: list[str] = []  # without quotes; a NUL where a word is not fixed
        self.parts: list[str] | None = None  # the current word; None between words
        self.bare = True  # whether the current word is unquoted and fixed so far
        self.command = kind in ("list", "substitution")  # whether a command may begin here
        self.redirect = ""  # the operator whose target is the next word
        # The role of the next word: the name of a "for" or "function", its "in" or "body".
        self.name = ""
        self.phase = "subject"  # of a case: "subject", "in", "first pattern", "pattern", "body"
        self.depth = 0  # of parentheses in a test or around a pattern
        self.holes: list[
            tuple[int, str]
        ] = []  # of a test: offset and quoting of the variables without a recorded context

    def add(self, text: str, *, bare: bool = False) -> None:
        """Append to the current word. bare: the text is not quoted, escaped or expanded."""
        if self.parts is None:
            self.parts = []
            self.bare = True
        self.parts.append(text)
        self.bare = self.bare and bare

    @property
    def word(self) -> str:
        return "".join(self.parts or ())

    @property
    def is_body(self) -> bool:
        """Whether commands are allowed here: not in the subject or pattern of a case."""
        return self.kind != "case" or self.phase == "body"

    @property
    def may_assign(self) -> bool:
        """Whether the current word may be an array assignment."""
        is_declared = bool(self.words) and self.words[0] in DECLARERS
        return self.bare and not self.name and (self.command or is_declared)

    def end_command(self) -> None:
        self.words = []
        self.command = True
        self.redirect = ""
        if self.name not in ("in", "body"):  # `in` and the body may be on the next line
            self.name = ""


class Nesting:
    """The stack of open frames. `on_test` is called at the end of each condition inside `[[ … ]]`."""

    def __init__(self, on_test: Callable[[Frame], None]) -> None:
        self.stack = [Frame("list")]
        self.on_test = on_test

    @property
    def top(self) -> Frame:
        return self.stack[-1]

    @property
    def words(self) -> Frame:
        """The frame of the current word."""
        return self.stack[-2] if self.top.kind == "double" else self.top

    @property
    def level(self) -> int:
        """The number of enclosing substitutions and double quotes."""
        return sum(frame.kind in ("substitution", "double") for frame in self.stack)

    def push(self, kind: str) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise UncertainParse(f"more than {MAX_DEPTH} levels of nesting")
        self.stack.append(Frame(kind))

    def enters_case_pattern(self, frame: Frame) -> bool:
        """Whether a `(` here begins a `case` pattern; if so, enter the pattern."""
        if frame.kind != "case" or frame.phase != "first pattern" or frame.parts is not None:
            return False
        frame.phase = "pattern"
        frame.depth = 1
        return True

    def close(self) -> None:
        """Process a `)`."""
        self.finish_word()
        frame = self.top
        if frame.kind == "test" and frame.depth:
            frame.depth -= 1
        elif not frame.is_body and frame.phase in ("first pattern", "pattern"):
            if self.level and not frame.depth:
                raise UncertainParse(
                    "a `case` pattern without its `(` inside `$( … )`, which bash 3 misreads"
                )
            frame.depth = 0
            frame.phase = "body"
            frame.end_command()
        elif frame.kind not in ("list", "substitution", "array") or len(self.stack) == 1:
            raise UncertainParse("an unmatched `)`")
        else:
            self.stack.pop()
            if frame.kind == "list":
                self.words.end_command()
            else:
                self.words.add(HOLE)

    def finish_word(self) -> None:
        """End the current word, if any; a reserved word changes the state of the grammar."""
        frame = self.top
        if frame.parts is None:
            return
        word = frame.word
        bare = frame.bare
        frame.parts = None
        if frame.redirect:
            frame.redirect = ""
        elif frame.kind == "array":
            pass
        elif frame.kind == "test":
            if bare and word == "]]":
                self.on_test(frame)
                self.stack.pop()
            else:
                frame.words.append(word)
        elif not frame.is_body:
            self._case_word(frame, word if bare else "")
        elif frame.name:
            self._named_word(frame, word if bare else "")
        elif frame.command and ((bare and self._reserved_word(frame, word)) or ASSIGNMENT.match(word)):
            pass
        else:
            if frame.command and word == "alias":
                raise UncertainParse("an `alias`, which may change how words are read")
            frame.words.append(word)
            frame.command = False

    def _case_word(self, frame: Frame, word: str) -> None:
        if frame.phase == "subject":
            frame.phase = "in"
        elif frame.phase == "in":
            if word != "in":
                raise UncertainParse("a `case` without its `in`")
            frame.phase = "first pattern"
        elif frame.phase == "first pattern" and word == "esac":
            self.stack.pop()
        else:
            frame.phase = "pattern"

    def _named_word(self, frame: Frame, word: str) -> None:
        if frame.name in ("for", "function"):
            frame.name = "in" if frame.name == "for" else "body"
            frame.command = frame.name == "body"
            return
        is_body = frame.name == "body"
        frame.name = ""
        if not is_body:
            frame.command = word == "do"
            if word == "in":
                frame.words.append("for")  # marks the following words as a list, not a command
        elif not self._reserved_word(frame, word):
            raise UncertainParse("a `function` without a body")

    def _reserved_word(self, frame: Frame, word: str) -> bool:
        if word in KEYWORDS:
            return True
        if word in ("for", "select", "function"):
            frame.name = "function" if word == "function" else "for"
            frame.command = False
        elif word == "case":
            frame.command = False
            self.push("case")
        elif word == "[[":
            frame.command = False
            self.push("test")
        elif word == "esac" and frame.kind == "case":
            self.stack.pop()
        elif word in _CLOSERS:
            frame.command = False
        else:
            return False
        return True
