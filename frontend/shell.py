"""Where a variable stands in a shell command: inside which quotes, or where no quoting helps.

Owns the lexical structure of bash and POSIX sh, and only as much of it as that question needs:
quotes, escapes, comments, expansions, here-documents, and the reserved words that decide which `)`
closes what. A command is a text with a NUL for each variable. The rule is to be sure or to refuse:
where bash (3.2 up) and sh read a text differently, or it is too intricate to follow, every variable
behind that place is refused (`spec/interpolation.md`). What a quoted value means to the program that
gets it belongs to `rereading`.

Must not be in here: the `${…}` syntax of templates, which belongs to `templates`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from .rereading import Trouble, here_document_reader, is_arithmetic_test, reader_of

# Deeper nesting than a person writes; what is deeper is refused, not followed.
MAX_DEPTH = 100
HOLE = "\0"


@attrs.frozen
class Place:
    """What a variable's place asks for.

    quoting: "word", "single", "double" or "heredoc"; "comment" where no program sees it; "" where no
    quoting can make it safe, and then `trouble` says why. Other places may carry a trouble too.
    """

    quoting: str
    trouble: Trouble | None = None


def places(command: str, data: Sequence[bool]) -> tuple[Place, ...]:
    """The place of each NUL in `command`, in order.

    `data` says for each whether it is a value to be quoted; the others are spliced as written and
    only taken to be some text that leaves the quoting as it was.
    """
    reader = _Reader(command, data)
    trouble = UNCLEAR
    try:
        reader.read(0, len(command))
    except _Unsure as unsure:
        trouble = attrs.evolve(UNCLEAR, message=f"stands behind {unsure.what}, {UNCLEAR.message}")
    refused = Place("", trouble)
    return tuple(reader.places.get(at, refused) for at in reader.holes)


class _Unsure(Exception):
    """The text cannot be followed any further with certainty."""

    def __init__(self, what: str) -> None:
        self.what = what


def _refusal(message: str, help: str) -> Trouble:
    return Trouble("unquotable-variable", message, help)


_VARIABLE_FIRST = 'put it in a shell variable on a line before: `v=@`, then use `"$v"` here'

UNCLEAR = _refusal("where its quoting cannot be told for certain", _VARIABLE_FIRST)
AFTER_BACKSLASH = _refusal(
    "stands after a backslash, which would undo its quoting",
    "remove the backslash; for a literal `${` write `$${`",
)
AFTER_DOLLAR = _refusal(
    "stands after a `$`, which would change the quotes put around it",
    "write `\\$` for a dollar sign before it",
)
IN_PARAMETER = _refusal(
    "stands inside the shell's own `${…}`, where quotes mean different things in different shells",
    "put it in a shell variable first: `v=@`, then use `$v` inside the `${…}`",
)
IN_BACKTICKS = _refusal(
    "stands inside backticks, which read quotes twice", "write `$( … )` for the backticks"
)
IN_ARITHMETIC = _refusal(
    "stands in arithmetic, where bash may run what the value says",
    "compare with `[ @ -gt 0 ]`, or give it to a program such as `expr` as an argument",
)
IN_ANSI = _refusal("stands inside `$'…'`, where backslashes are read", "end the `$'…'` before it: `$'\\t'@`")
IN_QUOTED_HEREDOC = _refusal(
    "stands in a here-document with a quoted delimiter, where nothing can be escaped",
    "take the quotes off the delimiter (`<<EOF`); the shell's own `$` then needs a backslash in it",
)
IN_HEREDOC_COMMAND = _refusal(
    "stands in a command inside a here-document, or in a here-document inside `$( … )`",
    'put it in a shell variable first: `v=@`, then use `"$v"` here',
)
IN_DELIMITER = _refusal("is the delimiter of a here-document", "write a fixed word such as EOF")

_PLAIN = re.compile(r"[^\s'\"\\`$#;&|<>()\0]+")
_DOUBLE_PLAIN = re.compile(r"[^\"\\`$\0]+")
_HEREDOC_PLAIN = re.compile(r"[^\\`$\0]+")
_OPERATOR = re.compile(r"&>>|&>|>&|>>|>\||<<<|<<-|<<|<&|<>|&&|\|\||\|&|;;&|;;|;&|[<>;&|]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^\]]*\])?\+?=")
_EMPTY_PARENTHESES = re.compile(r"\([ \t]*\)")
_ANSI = re.compile(r"\$'(?:[^'\\]|\\[^'])*'")
_BACKTICKS = re.compile(r"`(?:[^`\\]|\\.)*`", re.DOTALL)
_BALANCED = re.compile(r"(?:[^'\"\\]|\\.|'[^'\\]*'|\"(?:[^\"\\]|\\.)*\")*", re.DOTALL)
_DELIMITER = re.compile(
    r"[ \t]*(?:'(?P<single>[\w.+-]+)'|\"(?P<double>[\w.+-]+)\"|\\(?P<escaped>[\w.+-]+)|(?P<bare>[\w.+-]+))"
    r"(?=[\s;&|<>()]|\Z)"
)
_ARITHMETIC = re.compile(r"[A-Za-z0-9_ \t\n+\-*/%<>=!&|^~?:,#.\[\]]+")
_PARAMETER_PLAIN = re.compile(r"[^'\"\\`${}\0]+")
_PARAMETER_QUOTED = re.compile(r"'[^'\"\\`$}\0]*'")
_PARAMETER_DOUBLE = re.compile(r"\"[^'\"\\`$}\0]*\"")
_PARAMETER_ESCAPE = re.compile(r"\\[A-Za-z0-9/.,:;*?+_ \-]")

# Reserved words behind which a command begins, and those that end one.
_OPENERS = frozenset({"if", "then", "elif", "else", "while", "until", "do", "{", "!", "time", "coproc"})
_CLOSERS = frozenset({"fi", "done", "}"})
# Frames whose text the shell collects before it reads it as commands of their own.
_SUBSTITUTION = "substitution"


class _Frame:
    """One level of nesting, with the simple command under way in it.

    kind: "list" (the text, a subshell, a function's parentheses), "substitution", "array", "test"
    (`[[ … ]]`), "case", "double" (double quotes; its words belong to the frame below).
    """

    __slots__ = ("bare", "command", "depth", "holes", "kind", "name", "parts", "phase", "redirect", "words")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.words: list[str] = []  # quotes removed; a NUL where a word is not fixed
        self.parts: list[str] | None = None  # the word under way
        self.bare = True  # whether that word is unquoted and fixed so far
        self.command = kind in ("list", _SUBSTITUTION)  # whether the next word is a command's first
        self.redirect = False  # whether the next word is a redirection's target
        self.name = ""  # "for", "in", "function": what the next word stands for
        self.phase = "subject"  # of a case: "subject", "in", "pattern", "first pattern", "body"
        self.depth = 0  # of parentheses in a test
        self.holes: list[int] = []  # of a test: variables not judged yet

    def add(self, text: str, *, bare: bool = False) -> None:
        if self.parts is None:
            self.parts = []
            self.bare = True
        self.parts.append(text)
        self.bare = self.bare and bare

    @property
    def word(self) -> str:
        return "".join(self.parts or ())


class _Heredoc:
    __slots__ = ("delimiter", "level", "quoted", "strip", "words")

    def __init__(self, delimiter: str, quoted: bool, strip: bool, words: list[str], level: int) -> None:
        self.delimiter = delimiter
        self.quoted = quoted
        self.strip = strip
        self.words = words
        self.level = level


class _Reader:
    def __init__(self, text: str, data: Sequence[bool]) -> None:
        self.text = text
        self.holes = [at for at, ch in enumerate(text) if ch == HOLE]
        self.data = dict(zip(self.holes, data, strict=True))
        self.places: dict[int, Place] = {}
        self.stack: list[_Frame] = []
        self.heredocs: list[_Heredoc] = []
        self.end = 0
        self.in_heredoc = 0

    # --- variables ------------------------------------------------------------------------

    def put(self, at: int, quoting: str) -> None:
        """A variable at `at`; notes its place and makes it part of the word under way."""
        frame = self.words_frame()
        if self.data[at]:
            if self.in_heredoc:
                self.refuse(at, IN_HEREDOC_COMMAND)
            elif frame.kind == "test":
                frame.holes.append(at)
                self.places[at] = Place(quoting, UNCLEAR)
            else:
                in_array = frame.kind == "array"
                fixed = frame.redirect or (frame.kind == "case" and frame.phase != "body")
                trouble = None if fixed else reader_of(frame.words, frame.word, frame.command, in_array)
                self.places[at] = Place(quoting, trouble)
        frame.add(HOLE)

    def refuse(self, at: int, trouble: Trouble) -> None:
        if self.data[at]:
            self.places[at] = Place("", trouble)

    def refuse_all(self, start: int, end: int, trouble: Trouble) -> None:
        for at in self.holes:
            if start <= at < end:
                self.refuse(at, trouble)

    # --- frames ---------------------------------------------------------------------------

    def words_frame(self) -> _Frame:
        top = self.stack[-1]
        return self.stack[-2] if top.kind == "double" else top

    def push(self, kind: str) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise _Unsure(f"more than {MAX_DEPTH} levels of nesting")
        self.stack.append(_Frame(kind))

    def level(self) -> int:
        return sum(frame.kind in (_SUBSTITUTION, "double") for frame in self.stack)

    def read(self, at: int, end: int) -> None:
        """Reads `text[at:end]` as a list of commands."""
        self.end = end
        self.push("list")
        self.until_depth(at, 0)
        self.stack.clear()

    def until_depth(self, at: int, depth: int) -> int:
        """Reads on until only `depth` frames are left or the text ends; gives the place reached."""
        while at < self.end and len(self.stack) > depth:
            if self.stack[-1].kind == "double":
                at = self.in_double(at)
            else:
                at = self.in_command(at)
        if len(self.stack) <= depth:
            return at
        while len(self.stack) > depth and self.stack[-1].kind != "double":
            before = len(self.stack)
            self.finish_word()
            if len(self.stack) == before:
                break
        return at

    # --- inside double quotes -------------------------------------------------------------

    def in_double(self, at: int) -> int:
        text = self.text
        frame = self.words_frame()
        plain = _DOUBLE_PLAIN.match(text, at, self.end)
        if plain:
            frame.add(plain[0])
            return plain.end()
        ch = text[at]
        if ch == '"':
            self.stack.pop()
            frame.add("")
            return at + 1
        if ch == HOLE:
            self.put(at, "double")
            return at + 1
        if ch == "\\":
            return self.backslash(at, frame)
        if ch == "`":
            return self.backticks(at)
        return self.dollar(at, quoted=True)

    def backslash(self, at: int, frame: _Frame) -> int:
        following = self.text[at + 1 : min(at + 2, self.end)]
        if following == HOLE:
            self.refuse(at + 1, AFTER_BACKSLASH)
            frame.add(HOLE)
        elif following != "\n":
            frame.add(following)
        return at + 2

    # --- expansions -----------------------------------------------------------------------

    def dollar(self, at: int, *, quoted: bool) -> int:
        """What a `$` begins; `quoted` in double quotes and here-documents."""
        text = self.text
        frame = self.words_frame()
        following = text[at + 1 : min(at + 2, self.end)]
        if following == "(":
            if text.startswith("((", at + 1):
                frame.add(HOLE)
                return self.arithmetic(at + 3, self.end)
            self.push(_SUBSTITUTION)
            return at + 2
        if following == "{":
            frame.add(HOLE)
            return self.parameter(at + 2, self.end, quoted)
        if following == "'" and not quoted:
            ansi = _ANSI.match(text, at, self.end)
            if ansi is None:
                raise _Unsure("a `$'…'` that bash and sh end at different places")
            self.refuse_all(at, ansi.end(), IN_ANSI)
            frame.add(HOLE)
            return ansi.end()
        if following == "[":
            raise _Unsure("a `$[`, which only some shells read as arithmetic")
        if following == HOLE and not quoted:
            self.refuse(at + 1, AFTER_DOLLAR)
            frame.add("$" + HOLE)
            return at + 2
        if text.startswith("\\\n", at + 1):
            raise _Unsure("a `$` at the end of a continued line")
        name = _NAME.match(text, at + 1, self.end)
        if name:
            frame.add(HOLE)
            return name.end()
        frame.add("$")
        return at + 1

    def parameter(self, at: int, end: int, quoted: bool) -> int:
        """Behind the `}` of the shell's own `${`, whose inside begins at `at`."""
        text = self.text
        depth = 1
        while at < end:
            ch = text[at]
            if ch == HOLE:
                self.refuse(at, IN_PARAMETER)
                at += 1
            elif ch == "}":
                depth -= 1
                at += 1
                if depth == 0:
                    return at
            elif ch == "$" and text.startswith("{", at + 1):
                depth += 1
                at += 2
            elif ch == "$" and text[at + 1 : at + 2] not in ("(", "'", '"', "[", "\\", "`", "$"):
                at += 1
            else:
                inside = _PARAMETER_PLAIN.match(text, at, end) or _PARAMETER_ESCAPE.match(text, at, end)
                inside = inside or _PARAMETER_QUOTED.match(text, at, end)
                if inside is None and not quoted:
                    inside = _PARAMETER_DOUBLE.match(text, at, end)
                if inside is None:
                    break
                at = inside.end()
        raise _Unsure("a `${…}` of the shell with quotes or commands inside")

    def arithmetic(self, at: int, end: int) -> int:
        """Behind the `))` of an arithmetic expansion or command whose inside begins at `at`."""
        text = self.text
        depth = 0
        while at < end:
            ch = text[at]
            if ch == HOLE:
                self.refuse(at, IN_ARITHMETIC)
                at += 1
            elif ch == "(":
                depth += 1
                at += 1
            elif ch == ")" and depth:
                depth -= 1
                at += 1
            elif ch == ")" and text.startswith(")", at + 1):
                return at + 2
            elif ch == "$" and text.startswith("{", at + 1):
                at = self.parameter(at + 2, end, True)
            elif ch == "$" and (name := _NAME.match(text, at + 1, end)):
                at = name.end()
            elif ch == ";" or (inside := _ARITHMETIC.match(text, at, end)) is None:
                break
            else:
                at = inside.end()
        raise _Unsure("a `((` that is not plain arithmetic (`( (` begins a subshell)")

    def backticks(self, at: int) -> int:
        found = _BACKTICKS.match(self.text, at, self.end)
        if found is None:
            raise _Unsure("backticks that do not end")
        self.refuse_all(at, found.end(), IN_BACKTICKS)
        inside = found[0][1:-1]
        if "<<" in inside or _BALANCED.fullmatch(inside) is None:
            raise _Unsure("backticks with unbalanced quotes or a here-document inside")
        self.words_frame().add(HOLE)
        return found.end()

    # --- commands -------------------------------------------------------------------------

    def in_command(self, at: int) -> int:
        text = self.text
        frame = self.stack[-1]
        plain = _PLAIN.match(text, at, self.end)
        if plain:
            frame.add(plain[0], bare=True)
            return plain.end()
        ch = text[at]
        if ch == HOLE:
            self.put(at, "word")
            return at + 1
        if ch == "\n":
            return self.newline(at)
        if ch.isspace() and ch not in " \t":
            frame.add(ch, bare=True)  # only blank, tab and newline part words in every locale
            return at + 1
        if ch in " \t":
            self.finish_word()
            return at + 1
        if ch == "'":
            return self.single(at)
        if ch == '"':
            frame.add("")
            self.push("double")
            return at + 1
        if ch == "\\":
            return self.backslash(at, frame)
        if ch == "`":
            return self.backticks(at)
        if ch == "$":
            return self.dollar(at, quoted=False)
        if ch == "#":
            return self.hash(at)
        if ch == "(":
            return self.open_parenthesis(at)
        if ch == ")":
            return self.close_parenthesis(at)
        return self.operator(at)

    def single(self, at: int) -> int:
        frame = self.stack[-1]
        frame.add("")
        at += 1
        while at < self.end:
            ch = self.text[at]
            if ch == "'":
                return at + 1
            if ch == HOLE:
                self.put(at, "single")
            else:
                frame.add(ch)
            at += 1
        return at

    def hash(self, at: int) -> int:
        frame = self.stack[-1]
        if frame.parts is not None:
            if self.text[at - 1] == HOLE and not self.data[at - 1]:
                raise _Unsure("a `#` that may begin a comment or not")
            frame.add("#", bare=True)
            return at + 1
        if frame.kind == "test":
            raise _Unsure("a `#` inside `[[ … ]]`")
        end = self.text.find("\n", at, self.end)
        end = self.end if end < 0 else end
        comment = self.text[at:end]
        for hole in self.holes:
            if at <= hole < end and self.data[hole]:
                self.places[hole] = Place("comment")
        if self.level() and re.search(r"['\"`()\\]", comment):
            raise _Unsure("a comment with quotes or parentheses inside `$( … )`, which bash 3 misreads")
        return end

    def operator(self, at: int) -> int:
        text = self.text
        frame = self.stack[-1]
        found = _OPERATOR.match(text, at, self.end)
        if found is None:
            raise _Unsure("a character no shell gives a meaning")
        operator = found[0]
        after = found.end()
        if text.startswith("\\\n", after):
            raise _Unsure("an operator at the end of a continued line")
        if operator in ("<", ">") and text.startswith("(", after) and frame.kind != "test":
            frame.add(HOLE)
            self.push(_SUBSTITUTION)
            return after + 1
        if frame.kind == "test":
            self.finish_word()
            if operator in ("&&", "||"):
                self.judge_test(frame)
            elif operator not in ("<", ">", "|"):
                raise _Unsure("a `[[ … ]]` that does not end")
            return after
        if "<" in operator or ">" in operator:
            if frame.bare and frame.word.isdigit():
                frame.parts = None  # a file descriptor
            self.finish_word()
            frame = self.stack[-1]
            if operator in ("<<", "<<-"):
                return self.begin_heredoc(after, operator == "<<-")
            frame.redirect = True
            return after
        self.finish_word()
        frame = self.stack[-1]
        if frame.kind == "array":
            raise _Unsure("an array that does not end")
        if frame.kind == "case":
            if frame.phase in ("pattern", "first pattern"):
                if operator != "|":
                    raise _Unsure("a `case` whose patterns do not end")
                return after
            if operator in (";;", ";&", ";;&"):
                frame.phase = "first pattern"
                frame.words = []
                return after
        self.end_command()
        return after

    def end_command(self) -> None:
        frame = self.stack[-1]
        frame.words = []
        frame.command = True
        frame.redirect = False
        if frame.name != "in":
            frame.name = ""

    def newline(self, at: int) -> int:
        self.finish_word()
        frame = self.stack[-1]
        if frame.kind in ("list", _SUBSTITUTION) or (frame.kind == "case" and frame.phase == "body"):
            self.end_command()
        at += 1
        if self.heredocs:
            at = self.read_heredocs(at)
        return at

    def open_parenthesis(self, at: int) -> int:
        text = self.text
        frame = self.stack[-1]
        if frame.kind == "test":
            self.finish_word()
            frame.depth += 1
            return at + 1
        if frame.kind == "case" and frame.phase == "first pattern" and frame.parts is None:
            frame.phase = "pattern"
            frame.depth = 1
            return at + 1
        empty = _EMPTY_PARENTHESES.match(text, at, self.end)
        if frame.parts is not None:
            if frame.bare and _ASSIGNMENT.fullmatch(frame.word):
                self.push("array")
                return at + 1
            if empty is None:
                raise _Unsure("a `(` glued to a word")
        if frame.kind == "array" or (frame.kind == "case" and frame.phase != "body"):
            raise _Unsure("a `(` where none belongs")
        if empty is not None and (frame.parts is not None or len(frame.words) == 1):  # f() or f ()
            frame.parts = None
            self.end_command()
            return empty.end()
        if text.startswith("((", at) and (frame.command or frame.name == "for"):
            return self.arithmetic(at + 2, self.end)
        if not frame.command and frame.name != "after function":
            raise _Unsure("a `(` where none belongs")
        self.push("list")
        return at + 1

    def close_parenthesis(self, at: int) -> int:
        self.finish_word()
        frame = self.stack[-1]
        if frame.kind == "test" and frame.depth:
            frame.depth -= 1
            return at + 1
        if frame.kind == "case" and frame.phase in ("pattern", "first pattern"):
            if self.level() and not frame.depth:
                raise _Unsure("a `case` pattern without its `(` inside `$( … )`, which bash 3 misreads")
            frame.depth = 0
            frame.phase = "body"
            frame.words = []
            frame.command = True
            return at + 1
        if frame.kind not in ("list", _SUBSTITUTION, "array") or len(self.stack) == 1:
            raise _Unsure("a `)` that closes nothing")
        self.stack.pop()
        if frame.kind == _SUBSTITUTION and any(heredoc.level > self.level() for heredoc in self.heredocs):
            raise _Unsure("a here-document that begins outside the `$( … )` it belongs to")
        below = self.words_frame()
        if frame.kind == "list":
            below.words = []
            below.command = True
        else:
            below.add(HOLE)
        return at + 1

    def finish_word(self) -> None:
        """Ends the word under way, if any, and takes what a reserved word says."""
        frame = self.stack[-1]
        if frame.parts is None:
            return
        word = frame.word
        bare = frame.bare
        frame.parts = None
        if frame.redirect:
            frame.redirect = False
        elif frame.kind == "array":
            pass
        elif frame.kind == "test":
            if bare and word == "]]":
                self.judge_test(frame)
                self.stack.pop()
            else:
                frame.words.append(word)
        elif frame.kind == "case" and frame.phase != "body":
            self.case_word(frame, word if bare else "")
        elif frame.name:
            self.named_word(frame, word if bare else "")
        elif (frame.command and bare and self.reserved_word(frame, word)) or (
            frame.command and _ASSIGNMENT.match(word)
        ):
            pass
        else:
            if frame.command and word == "alias":
                raise _Unsure("an `alias`, which may change how words are read")
            frame.words.append(word)
            frame.command = False

    def case_word(self, frame: _Frame, word: str) -> None:
        if frame.phase == "subject":
            frame.phase = "in"
        elif frame.phase == "in":
            if word != "in":
                raise _Unsure("a `case` without its `in`")
            frame.phase = "first pattern"
        elif frame.phase == "first pattern" and word == "esac":
            self.stack.pop()
        else:
            frame.phase = "pattern"

    def named_word(self, frame: _Frame, word: str) -> None:
        if frame.name == "function":
            frame.command = True
            frame.name = ""
        elif frame.name == "for":
            frame.name = "in"
        else:
            frame.name = ""
            frame.command = word == "do"

    def reserved_word(self, frame: _Frame, word: str) -> bool:
        if word in _OPENERS:
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

    def judge_test(self, frame: _Frame) -> None:
        trouble = is_arithmetic_test(frame.words)
        for at in frame.holes:
            self.places[at] = Place(self.places[at].quoting, trouble)
        frame.words = []
        frame.holes = []

    # --- here-documents -------------------------------------------------------------------

    def begin_heredoc(self, at: int, strip: bool) -> int:
        found = _DELIMITER.match(self.text, at, self.end)
        if found is None:
            word = re.compile(r"[ \t]*[^\s\0]*\0").match(self.text, at, self.end)
            if word is not None:
                self.refuse(word.end() - 1, IN_DELIMITER)
            raise _Unsure("a here-document whose delimiter is not one plain word")
        frame = self.stack[-1]
        quoted = found["bare"] is None
        delimiter = found["single"] or found["double"] or found["escaped"] or found["bare"]
        self.heredocs.append(_Heredoc(delimiter, quoted, strip, frame.words, self.level()))
        return found.end()

    def read_heredocs(self, at: int) -> int:
        """Reads the bodies that begin at `at`; gives the place behind the last one's delimiter."""
        waiting, self.heredocs = self.heredocs, []
        for heredoc in waiting:
            if heredoc.level != self.level():
                raise _Unsure("a here-document whose text begins inside another command")
            at = self.read_heredoc(heredoc, at)
        return at

    def read_heredoc(self, heredoc: _Heredoc, start: int) -> int:
        text = self.text
        at = start
        after = self.end
        while at < self.end:
            stop = text.find("\n", at, self.end)
            stop = self.end if stop < 0 else stop
            line = text[at:stop]
            if (line.lstrip("\t") if heredoc.strip else line) == heredoc.delimiter:
                after = min(stop + 1, self.end)
                break
            if not heredoc.quoted and (len(line) - len(line.rstrip("\\"))) % 2:
                raise _Unsure("a continued line in a here-document")
            at = stop + 1
        end = min(at, self.end)
        if heredoc.quoted:
            self.refuse_all(start, end, IN_QUOTED_HEREDOC)
        elif heredoc.level or self.in_heredoc:
            self.refuse_all(start, end, IN_HEREDOC_COMMAND)
        else:
            self.heredoc_text(start, end, here_document_reader(heredoc.words))
        if heredoc.level and re.search(r"['\"`()\\]", text[start:end]):
            raise _Unsure("a here-document inside `$( … )` with quotes or parentheses, which bash 3 misreads")
        return after

    def heredoc_text(self, at: int, end: int, trouble: Trouble | None) -> None:
        """The text of a here-document with an unquoted delimiter, which knows `\\`, `$` and backticks."""
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
                    self.places[at] = Place("heredoc", trouble)
                at += 1
            elif following == HOLE and ch in "\\$":
                self.refuse(at + 1, AFTER_BACKSLASH if ch == "\\" else AFTER_DOLLAR)
                at += 2
            elif ch == "\\":
                at += 2
            elif ch == "`":
                at = self.backticks(at)
            else:
                depth = len(self.stack)
                self.in_heredoc += 1
                at = self.until_depth(self.dollar(at, quoted=True), depth)
                self.in_heredoc -= 1
                if len(self.stack) > depth:
                    raise _Unsure("a `$( … )` that does not end inside its here-document")
        self.end = outer
