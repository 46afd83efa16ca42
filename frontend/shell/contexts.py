"""Quoting contexts of variables in a shell command.

Owns the part of the lexical structure of bash and POSIX sh that determines inside which quotes a variable is.
A command is a text with a NUL for each variable. Uncertain contexts are refused: where bash (3.2 or
later) and sh read a text differently, or the text is too intricate to parse, every later variable is
refused (`spec/interpolation.md`). `interpreters` owns programs that evaluate a quoted value.

Must not contain: the `${…}` syntax of templates (`template`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import attrs

from ...ir.python_internals import late_pattern
from ...ir.records import frozen
from . import expansions, heredocs
from .code_hazards import AS_NUMBER, COMMAND
from .command_words import selects_command
from .expansions import HOLE, NAME
from .grammar import ASSIGNMENT, DECLARERS, OPERATOR, Frame, Nesting
from .hazards import (
    AFTER_BACKSLASH,
    AFTER_DOLLAR,
    IN_DUPLICATION,
    IN_HEREDOC_COMMAND,
    IN_STRIPPED_HEREDOC,
    LIKE_DELIMITER,
    NEAR_DELIMITER,
    UNCLEAR,
    UNENDED,
    Hazard,
    UncertainParse,
)
from .heredocs import Heredoc
from .interpreters import argument_hazard, assignment_hazard, condition_hazard, input_hazard, is_evaluated
from .taint import tainted_values


@frozen
class QuotingContext:
    """Quoting context of a variable, and its hazard.

    quoting: "word", "single", "double", "heredoc" or "quoted_heredoc"; "comment" inside a comment; "" if
        no quoting is safe, for the reason in `hazard`.
    hazard: may be present for any quoting.
    around: in a here-document with a quoted delimiter, the delimiter and the text before and after the
    variable
        on its line, None if that text contains another variable.
    """

    quoting: str
    hazard: Hazard | None = None
    around: tuple[str | None, ...] = ()


@lru_cache(1024)
def quoting_contexts(command: str, data: tuple[bool, ...]) -> tuple[QuotingContext, ...]:
    """The context of each NUL in `command`, in order.

    data: for each NUL, whether it is a value to be quoted. The others are inserted verbatim and are assumed
    not to change the quoting. Results are cached, because a loop is compiled once for each loop that runs it.
    """
    reader = _Reader(command, data)
    hazard = UNCLEAR
    try:
        reader.read()
    except UncertainParse as unsure:
        hazard = attrs.evolve(UNCLEAR, message=f"follows {unsure.what}, {UNCLEAR.message}")
        if unsure.is_unended:
            reader.contexts = {
                at: place for at, place in reader.contexts.items() if place.quoting == "comment"
            }
            hazard = attrs.evolve(UNENDED, message=UNENDED.message.replace("@", unsure.what))
    for at, later in tainted_values(command, reader.data).items():
        place = reader.contexts.get(at)
        if place is not None and place.hazard is None and place.quoting != "comment":
            reader.contexts[at] = attrs.evolve(place, hazard=later)
    refused = QuotingContext("", hazard)
    return tuple(reader.contexts.get(at, refused) for at in reader.holes)


_PLAIN = late_pattern(r"[^\s'\"\\`$#;&|<>()\0]+")
_DOUBLE_PLAIN = late_pattern(r"[^\"\\`$\0]+")
_HEREDOC_PLAIN = late_pattern(r"[^\\`$\0]+")
_EMPTY_PARENTHESES = late_pattern(r"\([ \t]*\)")
# Bash 3 finds the end of `$( … )` by counting brackets, and counts those in comments and here-documents too.
_MISLEADING = late_pattern(r"['\"`()\\]")


class _Reader:
    def __init__(self, text: str, data: Sequence[bool]) -> None:
        self.text = text
        self.end = len(text)
        self.holes = [at for at, ch in enumerate(text) if ch == HOLE]
        self.data = dict(zip(self.holes, data, strict=True))
        self.contexts: dict[int, QuotingContext] = {}
        self.nesting = Nesting(self.check_condition)
        self.heredocs: list[Heredoc] = []
        self.is_in_heredoc = False
        # The position of the last value that names a command, and the words of that command.
        self.command_name: tuple[int, list[str] | None] = 0, None
        self.at = 0

    def read(self) -> None:
        self.read_nested(0, 0)
        if self.heredocs:
            raise UncertainParse("a here-document", is_unended=True)

    def read_nested(self, at: int, depth: int) -> int:
        """Read until only `depth` frames are open; returns the offset reached."""
        stack = self.nesting.stack
        while len(stack) > depth:
            self.at = at
            if at < self.end:
                at = self.in_double(at) if stack[-1].kind == "double" else self.in_command(at)
                continue
            opened = stack[-1].kind
            if opened != "double":
                self.nesting.finish_word()
                if stack[-1].kind == "list" and len(stack) == 1:
                    break
                if stack[-1].kind != opened:
                    continue
            what = {"double": 'a `"`', "test": "a `[[`", "case": "a `case`"}.get(opened, "a `(`")
            raise UncertainParse(what, is_unended=True)
        return at

    # --- variables ------------------------------------------------------------------------

    def record_variable(self, at: int, quoting: str) -> None:
        """Record the context of the variable at `at` and add it to the current word."""
        frame = self.nesting.words
        if self.data[at]:
            name, words = self.command_name
            if words is not None and any(each.words is words for each in self.nesting.stack):
                # The name may be `eval`, which has only safe characters.
                self.contexts[name] = attrs.evolve(
                    self.contexts[name], hazard=attrs.evolve(COMMAND, plain=None)
                )
            if self.is_in_heredoc:
                self.refuse(at, IN_HEREDOC_COMMAND)
            elif frame.redirect in (">&", "<&"):
                self.refuse(at, IN_DUPLICATION)
            elif frame.kind == "test":
                frame.holes.append((at, quoting))
            elif frame.redirect or not frame.is_body:
                hazard = input_hazard(frame.words) if frame.redirect == "<<<" else None
                self.contexts[at] = QuotingContext(quoting, hazard)
            else:
                is_array = frame.kind == "array"
                hazard = argument_hazard(frame.words, frame.word, is_first=frame.command, is_array=is_array)
                if hazard is None and not is_array:
                    rest = self.text[at + 1 : at + 2]
                    if selects_command(frame.words, frame.word, rest, is_first=frame.command):
                        hazard = COMMAND
                        self.command_name = at, frame.words
                self.contexts[at] = QuotingContext(quoting, hazard)
                self.check_assignment(frame, at)
        frame.add(HOLE)

    def check_assignment(self, frame: Frame, at: int) -> None:
        """Record a hazard if the variable at `at` is assigned to a shell variable that is evaluated."""
        assignment = ASSIGNMENT.match(frame.word)
        is_declared = bool(frame.words) and frame.words[0] in DECLARERS
        if assignment is None or not (frame.command or is_declared):
            return
        name = re.split(r"\W", assignment[0])[0]
        if self.contexts[at].hazard is not None:
            return
        runner = assignment_hazard(self.text, name)
        if runner is not None:
            self.contexts[at] = attrs.evolve(self.contexts[at], hazard=runner)
        elif is_evaluated(name, self.text[:at], is_declared=is_declared):
            self.contexts[at] = attrs.evolve(self.contexts[at], hazard=AS_NUMBER)

    def check_condition(self, frame: Frame) -> None:
        """Record the contexts of the variables of a `[[ … ]]` condition, whose operators are known at its
        end.
        """
        hazard = condition_hazard(frame.words)
        for at, quoting in frame.holes:
            self.contexts[at] = QuotingContext(quoting, hazard)
        frame.words = []
        frame.holes = []

    def refuse(self, at: int, hazard: Hazard) -> None:
        if self.data[at]:
            self.contexts[at] = QuotingContext("", hazard)

    def refuse_all(self, start: int, end: int, hazard: Hazard) -> None:
        for at in self.holes:
            if start <= at < end:
                self.refuse(at, hazard)

    # --- common to several contexts -----------------------------------------------

    def backslash(self, at: int) -> int:
        frame = self.nesting.words
        following = self.text[at + 1 : min(at + 2, self.end)]
        if following == HOLE:
            self.refuse(at + 1, AFTER_BACKSLASH)
        if following != "\n":
            frame.add(following)
        return at + 2

    def backticks(self, at: int) -> int:
        self.nesting.words.add(HOLE)
        return expansions.backticks(self.text, at, self.end, self.refuse)

    def dollar(self, at: int, *, is_quoted: bool) -> int:
        """Read the expansion that a `$` begins. is_quoted: in double quotes or a here-document."""
        text, end = self.text, self.end
        frame = self.nesting.words
        following = text[at + 1 : min(at + 2, end)]
        if following == "(" and not text.startswith("((", at + 1):
            self.nesting.push("substitution")
            return at + 2
        if following == HOLE and not is_quoted:
            self.refuse(at + 1, AFTER_DOLLAR)
            frame.add("$" + HOLE)
            return at + 2
        if following == "[":
            raise UncertainParse("a `$[`, which only some shells read as arithmetic")
        if text.startswith("\\\n", at + 1):
            raise UncertainParse("a `$` at the end of a continued line")
        name = NAME.match(text, at + 1, end)
        if following not in ("(", "{") and name is None and (following != "'" or is_quoted):
            frame.add("$")
            return at + 1
        frame.add(HOLE)
        if following == "(":
            return self.arithmetic(at + 3)
        if following == "{":
            return expansions.parameter(text, at + 2, end, self.refuse, is_quoted=is_quoted)
        return name.end() if name else expansions.ansi(text, at, end, self.refuse)

    def arithmetic(self, at: int, *, is_for: bool = False) -> int:
        return expansions.arithmetic(self.text, at, self.end, self.refuse, is_for=is_for)

    # --- inside double quotes -------------------------------------------------------------

    def in_double(self, at: int) -> int:
        frame = self.nesting.words
        plain = _DOUBLE_PLAIN.match(self.text, at, self.end)
        if plain:
            frame.add(plain[0])
            return plain.end()
        ch = self.text[at]
        if ch == '"':
            self.nesting.stack.pop()
        elif ch == HOLE:
            self.record_variable(at, "double")
        elif ch == "\\":
            return self.backslash(at)
        elif ch == "`":
            return self.backticks(at)
        else:
            return self.dollar(at, is_quoted=True)
        return at + 1

    # --- commands -------------------------------------------------------------------------

    def in_command(self, at: int) -> int:
        frame = self.nesting.top
        plain = _PLAIN.match(self.text, at, self.end)
        if plain:
            frame.add(plain[0], bare=True)
            return plain.end()
        match self.text[at]:
            case " " | "\t":
                self.nesting.finish_word()
            case "\n":
                return self.newline(at)
            case "\0":
                self.record_variable(at, "word")
            case "'":
                return self.single(at)
            case '"':
                frame.add("")
                self.nesting.push("double")
            case "\\":
                return self.backslash(at)
            case "`":
                return self.backticks(at)
            case "$":
                return self.dollar(at, is_quoted=False)
            case "#":
                return self.hash(at)
            case "(":
                return self.open_parenthesis(at)
            case ")":
                self.nesting.close()
                if any(heredoc.level > self.nesting.level for heredoc in self.heredocs):
                    raise UncertainParse("a here-document that begins outside the `$( … )` it belongs to")
            case ch if ch.isspace():
                frame.add(ch, bare=True)  # only space, tab and newline separate words
            case _:
                return self.operator(at)
        return at + 1

    def single(self, at: int) -> int:
        frame = self.nesting.top
        frame.add("")
        close = self.text.find("'", at + 1, self.end)
        for place in range(at + 1, self.end if close < 0 else close):
            if self.text[place] == HOLE:
                self.record_variable(place, "single")
            else:
                frame.add(self.text[place])
        if close < 0:
            raise UncertainParse("a `'`", is_unended=True)
        return close + 1

    def hash(self, at: int) -> int:
        """Read a `#`: a comment at the start of a word, otherwise a character of the word."""
        frame = self.nesting.top
        if frame.parts is not None:
            if self.text[at - 1] == HOLE and not self.data[at - 1]:
                raise UncertainParse("a `#` that may begin a comment or not")
            frame.add("#", bare=True)
            return at + 1
        if frame.kind == "test":
            raise UncertainParse("a `#` inside `[[ … ]]`")
        end = self.text.find("\n", at, self.end)
        end = self.end if end < 0 else end
        for hole in self.holes:
            if at <= hole < end and self.data[hole]:
                self.contexts[hole] = QuotingContext("comment")
        if self.nesting.level and _MISLEADING.search(self.text, at, end):
            raise UncertainParse(
                "a comment with quotes or parentheses inside `$( … )`, which bash 3 misreads"
            )
        return end

    def newline(self, at: int) -> int:
        self.nesting.finish_word()
        frame = self.nesting.top
        if frame.kind not in ("array", "test") and frame.is_body:
            frame.end_command()
        at += 1
        waiting, self.heredocs = self.heredocs, []
        for heredoc in waiting:
            if heredoc.level != self.nesting.level:
                raise UncertainParse("a here-document whose text begins inside another command")
            at = self.heredoc(heredoc, at)
        return at

    def operator(self, at: int) -> int:
        found = OPERATOR.match(self.text, at, self.end)
        assert found is not None
        operator, after = found[0], found.end()
        frame = self.nesting.top
        if self.text.startswith("\\\n", after):
            raise UncertainParse("an operator at the end of a continued line")
        if frame.kind == "array":
            raise UncertainParse(
                "an array", is_unended=True
            )  # bash would continue after the first line of the array
        if frame.kind == "test":
            self.nesting.finish_word()
            if operator in ("&&", "||"):
                self.check_condition(frame)
            elif operator not in ("<", ">", "|"):
                raise UncertainParse("a `[[ … ]]` with a command in it")
            return after
        if operator in ("<", ">") and self.text.startswith("(", after):
            frame.add(HOLE)
            self.nesting.push("substitution")
            return after + 1
        if "<" in operator or ">" in operator:
            return self.redirection(operator, after)
        self.nesting.finish_word()
        frame = self.nesting.top
        if not frame.is_body:
            if operator != "|" or frame.phase not in ("first pattern", "pattern"):
                raise UncertainParse("a `case` whose patterns do not end")
            return after
        frame.end_command()
        if frame.kind == "case" and operator in (";;", ";&", ";;&"):
            frame.phase = "first pattern"
        return after

    def redirection(self, operator: str, at: int) -> int:
        frame = self.nesting.top
        if frame.bare and frame.word.isdigit():
            frame.parts = None  # a file descriptor
        self.nesting.finish_word()
        frame = self.nesting.top
        if operator not in ("<<", "<<-"):
            frame.redirect = operator
            return at
        heredoc, at = heredocs.read_delimiter(
            self.text, at, self.end, self.refuse, operator == "<<-", frame.words, self.nesting.level
        )
        self.heredocs.append(heredoc)
        return at

    def open_parenthesis(self, at: int) -> int:
        frame = self.nesting.top
        if frame.kind == "test":
            self.nesting.finish_word()
            frame.depth += 1
            return at + 1
        if self.nesting.enters_case_pattern(frame):
            return at + 1
        if frame.kind == "array":
            raise UncertainParse("an array", is_unended=True)
        if not frame.is_body:
            raise UncertainParse("an unexpected `(`")
        empty = _EMPTY_PARENTHESES.match(self.text, at, self.end)
        is_word = frame.parts is not None
        if is_word and frame.may_assign and ASSIGNMENT.fullmatch(frame.word):
            self.nesting.push("array")
            return at + 1
        if empty is not None and (is_word or len(frame.words) == 1):  # `f()` or `f ()`
            frame.parts = None
            frame.end_command()
            return empty.end()
        if is_word:
            raise UncertainParse("a `(` directly after a word")
        is_for = frame.name == "for"
        if self.text.startswith("((", at) and (frame.command or is_for):
            return self.arithmetic(at + 2, is_for=is_for)
        if not frame.command:
            raise UncertainParse("an unexpected `(`")
        self.nesting.push("list")
        return at + 1

    # --- here-documents -------------------------------------------------------------------

    def heredoc(self, heredoc: Heredoc, start: int) -> int:
        """Read the here-document whose text begins at `start`; returns the offset after it."""
        end, after = heredoc.extent(self.text, start, self.end)
        if heredoc.level or self.is_in_heredoc:
            self.refuse_all(start, end, IN_HEREDOC_COMMAND)
        elif heredoc.is_quoted and heredoc.strips_tabs:
            self.refuse_all(start, end, IN_STRIPPED_HEREDOC)
        elif heredoc.is_quoted:
            self.literal_text(start, end, heredoc)
        else:
            self.heredoc_text(start, end, input_hazard(heredoc.words))
        if heredoc.level and _MISLEADING.search(self.text, start, end):
            raise UncertainParse(
                "a here-document inside `$( … )` with quotes or brackets, which bash 3 misreads"
            )
        return after

    def literal_text(self, start: int, end: int, heredoc: Heredoc) -> None:
        """Read the text of a here-document with a quoted delimiter, which the shell does not expand."""
        hazard = input_hazard(heredoc.words)
        for at in self.holes:
            if start <= at < end and self.data[at]:
                left = max(self.text.rfind("\n", start, at) + 1, start)
                right = self.text.find("\n", at, end)
                line = self.text[left:at], self.text[at + 1 : end if right < 0 else right]
                if HOLE in "".join(line) and "".join(line).replace(HOLE, "") == heredoc.delimiter:
                    self.refuse(at, NEAR_DELIMITER)
                    continue
                # A value before it may be empty, or end with a line break.
                before = line[0].split(HOLE)
                prefixes = (
                    {"".join(before[first:]) for first in range(len(before))} if len(before) > 1 else set()
                )
                if any(text and heredoc.delimiter.startswith(text) for text in prefixes):
                    self.refuse(at, LIKE_DELIMITER)
                    continue
                around = (None if HOLE in part else part for part in line)
                self.contexts[at] = QuotingContext("quoted_heredoc", hazard, (heredoc.delimiter, *around))

    def heredoc_text(self, at: int, end: int, hazard: Hazard | None) -> None:
        """Read the text of a here-document with an unquoted delimiter, where backslash, `$` and backticks are
        active.
        """
        text = self.text
        outer, self.end = self.end, end
        while at < end:
            plain = _HEREDOC_PLAIN.match(text, at, end)
            if plain:
                at = plain.end()
                continue
            ch = text[at]
            following = text[at + 1 : min(at + 2, end)]
            if ch == HOLE:
                if self.data[at]:
                    self.contexts[at] = QuotingContext("heredoc", hazard)
                at += 1
            elif following == HOLE and ch in "\\$":
                self.refuse(at + 1, AFTER_BACKSLASH if ch == "\\" else AFTER_DOLLAR)
                at += 2
            elif ch == "\\":
                at += 2
            else:
                at = self.heredoc_expansion(at)
        self.end = outer

    def heredoc_expansion(self, at: int) -> int:
        """Read an expansion with a separate nesting, so that no word of the here-document continues in it."""
        outer, self.nesting = self.nesting, Nesting(self.check_condition)
        waiting, self.heredocs = self.heredocs, []
        self.is_in_heredoc = True
        at = self.backticks(at) if self.text[at] == "`" else self.dollar(at, is_quoted=True)
        at = self.read_nested(at, 1)
        if self.heredocs:
            raise UncertainParse("a here-document inside a here-document")
        self.is_in_heredoc = False
        self.nesting, self.heredocs = outer, waiting
        return at
