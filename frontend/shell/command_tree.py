"""Tolerant parser of shell text: commands, their words, and the expansions in them.

Used by `taint`. Text that is too intricate is treated as plain text, or parsing stops. The correctness of
quoting never depends on this parser: `contexts` decides quoting, and refuses text that it cannot parse
with certainty.
"""

from __future__ import annotations

import re

import attrs

from ...ir.python_internals import late_pattern
from ...ir.records import define
from .expansions import HOLE, NAME
from .grammar import ASSIGNMENT, KEYWORDS, MAX_DEPTH, OPERATOR
from .heredocs import DELIMITER, word_of


@define(eq=False)
class Region:
    """A text that the shell expands: a word, an arithmetic expression, a here-document.

    text: the text without quotes, with a NUL for each of `parts`. is_bare: it has no quotes and no
    expansions.
    """

    start: int
    end: int = 0
    text: str = ""
    parts: list[Part] = attrs.field(factory=list)
    is_bare: bool = True


@define(eq=False)
class Part:
    """An expansion.

    kind: "hole" (a variable of the loop), "parameter" (`$name`, `${name…}`), "command" (`$( … )`),
        "process" (`<( … )`), "arithmetic".
    name: name of a parameter. sign: its prefix `#` or `!`, or its suffix `@P`.
    regions: expanded texts inside the expansion, each with whether it is evaluated as arithmetic.
    """

    kind: str
    start: int
    end: int = 0
    name: str = ""
    sign: str = ""
    regions: list[tuple[Region, bool]] = attrs.field(factory=list)
    body: list[Pipeline] = attrs.field(factory=list)


@define(eq=False)
class Command:
    """A simple command, or the part of a compound command before its first `;` or newline.

    inputs: texts of here-strings and here-documents. files: names of the files it reads. outputs: names of
    the files it writes. is_arithmetic: the command is `(( … ))`, its only word.
    """

    start: int
    words: list[Region] = attrs.field(factory=list)
    inputs: list[Region] = attrs.field(factory=list)
    files: list[Region] = attrs.field(factory=list)
    outputs: list[Region] = attrs.field(factory=list)
    is_arithmetic: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.words or self.inputs or self.files or self.outputs)


Pipeline = list[Command]

_BARE = late_pattern(r"[^\s'\"\\`$#;&|<>()\[\0]+")
_QUOTED = late_pattern(r"[^\"\\`$\0]+")
_COMPOUND = KEYWORDS | {"for", "select", "case", "[["}
_OPTIONS_OF_TIME = {("time", "-p"), ("time", "--"), ("-p", "--")}
_MAX_KEYWORDS = 100
_FUNCTION = late_pattern(r"[ \t]*\([ \t]*\)")


class TooDeep(Exception):
    """The text exceeds the parser's limit of nesting or size."""


class CommandTree:
    """The commands of `text[start:end]`.

    pipelines: all pipelines, including nested ones. top: the pipelines that are not nested.
    functions: names of the functions that the text defines.
    """

    def __init__(self, text: str, start: int = 0, end: int | None = None) -> None:
        self.text = text
        self.end = len(text) if end is None else end
        self.pipelines: list[Pipeline] = []
        self.functions: set[str] = set()
        self.expansions: list[Part] = []
        self._heredocs: list[tuple[str, bool, bool, Command]] = []
        self._depth = 0
        self.top, _ = self._list(start, nested=False)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TooDeep

    # --- commands -------------------------------------------------------------------------

    def _list(self, at: int, *, nested: bool) -> tuple[list[Pipeline], int]:
        """Parse pipelines from `at` up to the `)` that closes them; returns them and the offset after it."""
        self._enter()
        found: list[Pipeline] = [[Command(at)]]
        depth = 0
        while at < self.end:
            command = found[-1][-1]
            ch = self.text[at]
            if ch in " \t" or self.text.startswith("\\\n", at):
                at += 1 if ch != "\\" else 2
            elif ch == "\n":
                at = self._heredoc_texts(at + 1)
                found.append([Command(at)])
            elif ch == "#":
                at = self._line_end(at)
            elif self.text.startswith("((", at) and self._may_begin_command(command):
                region, at = self._arithmetic(at + 2, "))")
                region.start = command.start = at - (at - region.start) - 2
                region.end = at
                command.words = [region]
                command.is_arithmetic = True
            elif operator := OPERATOR.match(self.text, at, self.end):
                if operator[0] == ")":
                    at += 1
                    if nested and not depth:
                        break
                    depth -= 1
                    found.append([Command(at)])
                else:
                    depth += operator[0] == "("
                    at = self._operator(found, operator[0], at)
            else:
                at = self._read_command_word(found, command, at)
        self._depth -= 1
        found = [pipeline for pipeline in found if not all(command.is_empty for command in pipeline)]
        self.pipelines += found
        return found, at

    def _may_begin_command(self, command: Command) -> bool:
        """Whether the command consists only of reserved words so far, so that a command name may follow."""
        words = command.words
        at = count_keywords(words)
        if at > _MAX_KEYWORDS:  # `count_keywords` counts them again for each word
            raise TooDeep
        rest = [word.text for word in words[at : at + 2]]
        is_named = at > 0 and words[at - 1].text == "coproc" and len(words) == at + 1
        return not rest or rest == ["for"] or (is_named and NAME.fullmatch(rest[0]) is not None)

    def _read_command_word(self, found: list[Pipeline], command: Command, at: int) -> int:
        """Parse the word at `at` and the construct that it opens; returns the offset after it."""
        is_first = self._may_begin_command(command)
        word, at = self._word(at)
        if not command.words:
            command.start = word.start
        command.words.append(word)
        if word.is_bare:
            if word.text == "[[" and is_first:
                return self._condition(command, at)
            names = [each.text for each in command.words[-3:]]
            if names[-3:-2] == ["case"] and word.text == "in":
                found.append([Command(at)])
                return self._pattern(at)
            empty = _FUNCTION.match(self.text, at, self.end)
            if names[-2:-1] == ["function"] or (is_first and empty):
                self.functions.add(word.text)
                found.append([Command(at)])
                return empty.end() if empty else at
        return at

    def _operator(self, found: list[Pipeline], operator: str, at: int) -> int:
        command = found[-1][-1]
        after = at + len(operator)
        if operator in ("|", "|&"):
            found[-1].append(Command(after))
        elif operator in ("<<", "<<-"):
            delimiter = DELIMITER.match(self.text, after, self.end)
            if delimiter is None:
                return after
            is_quoted = delimiter["bare"] is None
            self._heredocs.append((word_of(delimiter), is_quoted, operator == "<<-", command))
            return delimiter.end()
        elif operator in "<>" and self.text.startswith("(", after):
            word, after = self._word(at)
            command.words.append(word)
        elif "<" in operator or ">" in operator:
            if command.words and command.words[-1].end == at and command.words[-1].text.isdigit():
                command.words.pop()
            target, after = self._word(self._blank_end(after))
            by_operator = {"<": command.files, "<>": command.files, "<<<": command.inputs}
            by_operator.get(operator, command.outputs).append(target)
        else:
            found.append([Command(after)])
            if operator in (";;", ";&", ";;&"):
                return self._pattern(after)
        return after

    def _pattern(self, at: int) -> int:
        """The offset after the `)` of a `case` pattern, or before `esac`."""
        at = self._blank_end(at, newlines=True)
        if re.compile(r"esac\b").match(self.text, at, self.end):
            return at
        at += self.text.startswith("(", at)
        while at < self.end and self.text[at] != ")":
            at = at + 1 if self.text[at] in " \t\n|<>;&(" else self._word(at)[1]
        return at + 1

    def _condition(self, command: Command, at: int) -> int:
        while at < self.end:
            if self.text[at] in " \t\n":
                at += 1
            elif self.text[at] in "()<>|&;":
                command.words.append(Region(at, at + 1, self.text[at]))
                at += 1
            else:
                word, at = self._word(at)
                command.words.append(word)
                if word.is_bare and word.text == "]]":
                    break
        return at

    def _blank_end(self, at: int, *, newlines: bool = False) -> int:
        blank = re.compile(r"(?:[ \t\n]|\\\n|#.*)*" if newlines else r"(?:[ \t]|\\\n)*")
        found = blank.match(self.text, at, self.end)
        return found.end() if found else at

    def _line_end(self, at: int) -> int:
        stop = self.text.find("\n", at, self.end)
        return self.end if stop < 0 else stop

    def _heredoc_texts(self, at: int) -> int:
        waiting, self._heredocs = self._heredocs, []
        for delimiter, is_quoted, strips, command in waiting:
            start = at
            while at < self.end:
                stop = self._line_end(at)
                line = self.text[at:stop]
                if (line.lstrip("\t") if strips else line) == delimiter:
                    break
                at = stop + 1
            at = min(at, self.end)
            region = Region(start, at, is_bare=False)
            outer, self.end = self.end, at
            if is_quoted:
                self._literal(region, start, at)
            else:
                self._expand(region, start, "")
            self.end = outer
            command.inputs.append(region)
            at = min(self._line_end(at) + 1, self.end)
        return at

    # --- words ----------------------------------------------------------------------------

    def _word(self, at: int) -> tuple[Region, int]:
        """Parse the word at `at`, which has at least one character; returns it and the offset after it."""
        region = Region(at)
        start = at
        while at < self.end:
            plain = _BARE.match(self.text, at, self.end)
            ch = self.text[at]
            if plain:
                region.text += plain[0]
                at = plain.end()
            elif ch == "'":
                close = self.text.find("'", at + 1, self.end)
                close = self.end if close < 0 else close
                region.is_bare = False
                self._literal(region, at + 1, close)
                at = close + 1
            elif ch == '"':
                region.is_bare = False
                at = self._expand(region, at + 1, '"')
            elif ch == "\\":
                region.is_bare = False
                region.text += self.text[at + 1 : at + 2].replace(HOLE, "").replace("\n", "")
                at += 2
            elif ch in "`$\0":
                region.is_bare = False
                at = self._expansion(region, at)
            elif ch in "<>" and self.text.startswith("(", at + 1):
                region.is_bare = False
                part = Part("process", at)
                part.body, at = self._list(at + 2, nested=True)
                self._add(region, part, at)
            elif ch == "(" and ASSIGNMENT.fullmatch(region.text):
                at = self._array(region, at + 1)
            elif ch == "[" and re.fullmatch(r"[A-Za-z_]\w*", region.text):
                region.text += ch
                at = self._expand(region, at + 1, "]")
                region.text += "]"
            elif at > start and ch in " \t\n;&|<>()":
                break
            else:
                region.text += ch
                at += 1
        region.end = min(at, self.end)
        return region, max(region.end, start + 1)

    def _array(self, region: Region, at: int) -> int:
        self._enter()
        region.is_bare = False
        while at < self.end and self.text[at] != ")":
            if self.text[at] == "#":
                at = self._line_end(at)
            elif self.text[at] in " \t\n;&|<>(":
                at += 1
            else:
                word, at = self._word(at)
                region.parts += word.parts
                region.text += " " + word.text
        self._depth -= 1
        return at + 1

    def _literal(self, region: Region, start: int, end: int) -> None:
        region.text += self.text[start:end]
        for at in range(start, end):
            if self.text[at] == HOLE:
                region.parts.append(Part("hole", at, at + 1))

    def _add(self, region: Region, part: Part, end: int) -> None:
        part.end = end
        region.text += HOLE
        region.parts.append(part)
        self.expansions.append(part)

    def _expand(self, region: Region, at: int, close: str) -> int:
        """Parse text as in double quotes from `at` to `close`; returns the offset after `close`."""
        self._enter()
        depth = 0
        pieces: list[str] = []
        while at < self.end:
            ch = self.text[at]
            if close and self.text.startswith(close, at) and not depth:
                at += len(close)
                break
            if ch in "`$\0":
                region.text += "".join(pieces)
                pieces = []
                at = self._expansion(region, at)
                continue
            if close == '"' or not close:
                plain = _QUOTED.match(self.text, at, self.end)
                if plain:
                    pieces.append(plain[0])
                    at = plain.end()
                    continue
            elif close in ("))", "]"):
                depth += (ch == close[0].translate(_OPENED)) - (ch == close[0])
            if ch == "\\":
                at += 1
                ch = self.text[at : at + 1].replace(HOLE, "")
            if ch != '"' or not close:
                pieces.append(ch)
            at += 1
        self._depth -= 1
        region.text += "".join(pieces)
        region.end = at
        return at

    def _arithmetic(self, at: int, close: str) -> tuple[Region, int]:
        region = Region(at)
        return region, self._expand(region, at, close)

    def _expansion(self, region: Region, at: int) -> int:
        """Parse an expansion that starts with a `$`, a backtick or a hole."""
        text = self.text
        part = Part("hole", at)
        if text[at] == HOLE:
            at += 1
        elif text[at] == "`":
            close = text.find("`", at + 1, self.end)
            close = self.end if close < 0 else close
            part.kind = "command"
            outer, self.end = self.end, close
            part.body, _ = self._list(at + 1, nested=False)
            self.end = outer
            at = close + 1
        elif text.startswith(("$((", "$["), at):
            part.kind = "arithmetic"
            is_old = text[at + 1] == "["
            inside, at = self._arithmetic(at + (2 if is_old else 3), "]" if is_old else "))")
            part.regions.append((inside, True))
        elif text.startswith("$(", at):
            part.kind = "command"
            part.body, at = self._list(at + 2, nested=True)
        elif text.startswith("${", at):
            part.kind = "parameter"
            at = self._parameter(part, at + 2)
        elif name := NAME.match(text, at + 1, self.end):
            part.kind = "parameter"
            part.name = name[0]
            at = name.end()
        else:
            region.text += "$"
            return at + 1
        self._add(region, part, min(at, self.end))
        return at

    def _parameter(self, part: Part, at: int) -> int:
        """Parse a `${…}` from after its `{`."""
        if self.text.startswith(("#", "!"), at) and NAME.match(self.text, at + 1, self.end):
            part.sign = self.text[at]
            at += 1
        if name := NAME.match(self.text, at, self.end):
            part.name = name[0]
            at = name.end()
        if self.text.startswith("[", at):
            subscript, at = self._arithmetic(at + 1, "]")
            part.regions.append((subscript, subscript.text not in ("@", "*")))
        if self.text.startswith("@P", at):
            part.sign = "@P"
        rest = Region(at)
        after = self._expand(rest, at, "}")
        is_offset = re.match(r":(?![-=?+])", rest.text) is not None
        part.regions.append((rest, is_offset))
        return after


_OPENED = str.maketrans(")]", "([")


def count_keywords(words: list[Region]) -> int:
    """The number of reserved words at the start of a command, including options of `time` and a name of
    `coproc`.
    """
    at = 0
    before = ""
    while at < len(words) and words[at].is_bare:
        text = words[at].text
        after = words[at + 1].text if at + 1 < len(words) else ""
        is_option = (before, text) in _OPTIONS_OF_TIME
        if not (text in KEYWORDS or is_option or (before == "coproc" and after in _COMPOUND)):
            break
        before = text
        at += 1
    return at
