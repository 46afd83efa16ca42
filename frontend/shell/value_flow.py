"""Data flow of values through an action: which variables, files, inputs and outputs hold them.

A quoted value is data at its own place. But it can reach a shell variable through `read`, `for`, `set --`,
`$(echo …)` and similar commands. The analysis propagates values through one action, independent of the order
of its lines. Fixed texts that may be code (`c='[[ $n -gt 1 ]]'; eval "$c"`) are propagated like values.
Unknown commands propagate values: a program prints its arguments and its input unless the tables below say
otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

from ...ir.python_internals import late_pattern
from .command_tree import Command, CommandTree, Part, Pipeline, Region, TooDeep, count_keywords
from .command_words import command_at, program_of
from .expansions import HOLE
from .grammar import ASSIGNMENT, DECLARERS, words_of
from .interpreters import (
    EVALUATORS,
    REQUIRED_SYNTAX,
    RUN_BY_PROGRAMS,
    SHELLS,
    assignment_hazard,
    evaluated_names,
)

# Limit of characters; the operating system would not start a longer command.
MAX_LENGTH = 1 << 17
# Fast check for anything in unquoted text that can evaluate a value: syntax, a variable that programs run, a
# command whose name is not fixed, a program. Most actions contain none.
_RUN_NAMES = RUN_BY_PROGRAMS.pattern.replace(r"\w+_", r"(?<=\w)_")
_SYNTAX = late_pattern(
    r"(?=[($\[@A-Z_])(?:\(\(|\$\[|(?<=\w)\[|\$\{!|@P\}|\$\{[^}]*:"
    r"|PS4|OPTIND|RANDOM|SECONDS|LINENO|HISTCMD|ENV|PROMPT_COMMAND"
    rf"|(?:{_RUN_NAMES})\b)"
)
_UNKNOWN_COMMAND = late_pattern(
    r"(?:[;|&(){}\n!`]|\b(?:then|do|else|elif|if|while|until|time|coproc)|=\S*\s|[<>]\s*\S+\s)\s*[$`]"
)
_PROGRAM = late_pattern(r"(?:\A|(?<=[\s;&|(){/!`]))[^\s;&|(){}/!`<>]++(?=[\s;|&()<>`]|\Z)")
# Characters of a version at the end of a program's name.
_VERSION = "0123456789."
_EVALUATOR_NAMES = {*EVALUATORS, *(name.rstrip(_VERSION) for name in EVALUATORS)} - {""}
_UNQUOTED = str.maketrans("", "", "'\"\\")
# Limit of passes over the lines; each value flow against the order of the lines needs one more pass.
_MAX_PASSES = 50
# Limit of analysed words in a command; the check of a word reads all words before it.
MAX_WORDS = 200
_POSITIONAL = "@"
# Programs that append words from their input to a command.
APPENDS_INPUT = ("xargs", "parallel")
_COMPOUND_ENDS = frozenset({"done", "fi", "esac", "}", ""})
_OPTION_C = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
# Limits of nested code, and of the number of code texts.
_MAX_CODE_DEPTH = 4
_MAX_CODE_TEXTS = 100
# A replacement string of `parallel`, which inserts a quoted value.
_REPLACEMENT_STRING = late_pattern(r"\{[^{}\s]*\}")
# A setting whose value is a command: `alias.x=!ls`, `ProxyCommand=nc …`, `--checkpoint-action=exec=…`.
_SETTING = late_pattern(r"-{0,2}[\w.-]*[.-][\w.-]*=(?:exec=)?!?|ProxyCommand=|LocalCommand=")
# Programs that print their input, but not their arguments.
_PRINTS_INPUT = words_of(
    "cat head tail tac rev sort uniq tr sed cut column fold fmt awk gawk mawk grep egrep jq tee"
)
# Programs that print neither. Every other program is assumed to print both.
_PRINTS_NEITHER = words_of(
    "wc date git curl stat true false test [ [[ : cd mkdir rm cp mv touch md5sum sha1sum sha256sum cksum "
    "hostname uname nproc id pwd sleep export declare local readonly typeset let read mapfile readarray "
    "exit return shift set unset case for select"
)
# Arguments with which filters print only numbers.
_NUMERIC_ARGUMENTS = {
    "tr": r"\A-(?:cd|dc)s? (?:0-9|\[:digit:\])(?:\\n)?\Z",
    "sed": r"s(?P<by>[/|,])\[\^0-9\]\*?(?P=by)(?P=by)g",
    "grep": r"\A-[A-Za-z]*[cq]|\A-[A-Za-z]*o[A-Za-z]* (?:\[0-9\]|\\d)\\?[*+]?(?: |\Z)",
    "jq": r"(?:\A|[| ])(?:length|tonumber)(?: [^|]*)?\Z",
}
_NUMERIC_ARGUMENTS["egrep"] = _NUMERIC_ARGUMENTS["grep"]
_PRINTS = late_pattern(r"\bprintf?\b[^;}\n]*")
_PRINTS_NUMBER = late_pattern(r"print (?:NR|length(?:\(\$?\w*\))?|int\([^()]*\)|(\w+)(?:\s*\+\s*0)?)\s*\Z")
_IDENTIFIER = late_pattern(r"[A-Za-z_]\w*")
_DIGITS_LEFT = late_pattern(r"\A//\[[!^]\\?-?0-9\]/?\Z")
_FORMAT = late_pattern(r"(?:[^%]|%%|%[-+ #0-9.]*[diouxXeEfFgGaA])*")


def _number_checked_variables(text: str) -> set[str]:
    """The shell variables that the text checks to be numbers."""
    if "[" not in text:
        return set()
    variable = r"\"?\$\{?([A-Za-z_0-9]+)\}?\"?"
    leave = r"\{?\s*(?:exit|return|continue|break)\b"
    patterns = (
        rf"\bcase\s+{variable}\s+in\b[^)]*\*\[[!^](?:\\?-|0-9|A-Z|a-z|_)+\]\*",
        r"\b([A-Za-z_]\w*)=\"?\$\{\1//\[[!^]0-9\]/?\}",
        rf"\[\[\s+(?:!\s+)?{variable}\s+=~\s+\^[-+?(\\]*(?:\[0-9\]|\[\[:digit:\]\])[+*]\)?\$",
        rf"\[\s+{variable}\s+-(?:eq|ne|lt|le|gt|ge)\s+\S+\s+\][^\n|;&]*(?:2>&1[ \t]*)?\|\|\s+{leave}",
    )
    return {name for pattern in patterns for name in re.findall(pattern, text)}


def may_evaluate(text: str) -> bool:
    """Whether a text contains anything that evaluates values; quotes and backslashes are ignored."""
    text = text.translate(_UNQUOTED)
    return bool(
        _SYNTAX.search(text)
        or text.lstrip()[:1] in ("$", "`")
        or _UNKNOWN_COMMAND.search(text)
        or any(_is_evaluator(word, text) for word in _PROGRAM.findall(text))
    )


def _is_evaluator(word: str, text: str) -> bool:
    """Whether a word of a text names a program that may evaluate values there."""
    name = word if word in _EVALUATOR_NAMES else word.rstrip(_VERSION)
    return name in _EVALUATOR_NAMES and (
        name not in REQUIRED_SYNTAX or REQUIRED_SYNTAX[name].search(text) is not None
    )


class ValueFlow:
    """Data flow analysis of one text.

    A set of values is an integer with one bit for each hole that holds data.
    """

    def __init__(self, text: str, data: dict[int, bool]) -> None:
        self.text = text
        self.holes = [at for at, is_data in data.items() if is_data]
        self.bits = {at: 1 << number for number, at in enumerate(self.holes)}
        outline = CommandTree(text)
        self.pipelines: list[Pipeline] = outline.pipelines
        self.expansions: list[Part] = outline.expansions
        self.functions = outline.functions
        self.top = outline.top
        self.checked = _number_checked_variables(text)
        self.held: dict[str, int] = {}
        self.special = evaluated_names(text)
        self.integers: set[str] = set()
        # Values in the input of compound commands; the command that reads them is not determined.
        self.compound_input = 0
        # Values in the output of any command: an approximation for compound commands and functions.
        self.all_output = 0
        self.files: dict[str, int] = {}
        self.heads: dict[int, tuple[list[Region], int]] = {}
        # Bits of fixed texts that may be code, above the bits of the holes; 0 for other texts.
        self.literals: dict[str, int] = {}
        self.inlined: set[str] = set()
        for command in [command for pipeline in self.pipelines for command in pipeline]:
            self.inline_code(command)

    def inline_code(self, command: Command, depth: int = 0) -> None:
        """Add the code in the arguments of `sh -c`, `eval` and `trap` to the text."""
        for code in self.codes_of(command):
            self.inline(code, depth)

    def inline(self, code: str, depth: int) -> None:
        """Append code to the analysed text, unless it was added before. Holes in it are analysed at their own
        place.
        """
        if not code or code in self.inlined:
            return
        if depth > _MAX_CODE_DEPTH or len(self.text) > MAX_LENGTH or len(self.inlined) > _MAX_CODE_TEXTS:
            raise TooDeep
        self.inlined.add(code)
        start = len(self.text) + 1
        self.text += "\n" + code.replace(HOLE, "_")
        inner = CommandTree(self.text, start)
        self.pipelines += inner.pipelines
        self.expansions += inner.expansions
        self.functions |= inner.functions
        for pipeline in inner.pipelines:
            for each in pipeline:
                self.inline_code(each, depth + 1)

    def codes_of(self, command: Command) -> list[str]:
        """The code texts in a command's arguments."""
        words, at = self.head(command)
        args = words[at + 1 :]
        match words[at].text if at < len(words) else "":
            case "eval" | "watch":
                return [" ".join(word.text for word in args if not word.text.startswith("-"))]
            case "parallel":
                texts = takewhile(lambda text: not text.startswith(":::"), (word.text for word in args))
                return [
                    _REPLACEMENT_STRING.sub(
                        '"$1"', " ".join(text for text in texts if not text.startswith("-"))
                    )
                ]
            case "trap":
                return [word.text for word in args if not word.text.startswith("-")][:1]
        return [words[index].text for index in _code_indexes(words)]

    def head(self, command: Command) -> tuple[list[Region], int]:
        """The words of a command after its reserved words, and the index of its name in them."""
        found = self.heads.get(id(command))
        if found is None:
            words = command.words[count_keywords(command.words) :]
            at = min(command_at([word.text for word in words]), len(words))
            found = self.heads[id(command)] = words, at
        return found

    # --- what texts hold ------------------------------------------------------------------

    def add_values(self, name: str, held: int) -> None:
        if held and name not in self.checked:
            self.held[name] = self.held.get(name, 0) | held

    def values_of_variable(self, name: str) -> int:
        is_positional = bool(name) and (name.isdigit() or name in "@*")
        if name in self.checked:
            return 0
        return self.held.get(_POSITIONAL if is_positional else name, 0)

    def value(self, region: Region, *, holes: bool = True) -> int:
        """The values in a region's expanded text."""
        return self.expanded(region, holes=holes) | self.literal(region, region.text)

    def expanded(self, region: Region, *, holes: bool = True) -> int:
        """The values in a region's expansions, without the bit of its fixed text."""
        held = 0
        for part in region.parts:
            held |= self.value_of(part, holes=holes)
        return held

    def literal(self, region: Region, text: str) -> int:
        """The bit of a fixed text in a region, if it may be code."""
        if region.is_bare:
            return 0
        bit = self.literals.get(text)
        if bit is None:
            may_run = may_evaluate(as_code(text))
            bit = self.literals[text] = 1 << (len(self.holes) + len(self.literals)) if may_run else 0
        return bit

    def value_of(self, part: Part, *, holes: bool = True) -> int:
        match part.kind:
            case "hole":
                return self.bits.get(part.start, 0) if holes else 0
            case "command":
                return self.output(part.body)
            case "parameter" if part.sign != "#":
                rest = [region for region, is_evaluated in part.regions if not is_evaluated]
                if any(_DIGITS_LEFT.match(region.text) for region in rest):
                    return 0
                held = self.values_of_variable(part.name)
                for region in rest:
                    held |= self.value(region, holes=holes)
                return held
        return 0

    def evaluated(self, region: Region) -> int:
        """The values that arithmetic on a region evaluates, including names without a `$`, but without the
        region's own holes.
        """
        held = self.value(region, holes=False)
        for name in _IDENTIFIER.findall(region.text):
            held |= self.values_of_variable(name)
        return held

    def evaluated_name(self, text: str) -> int:
        return self.values_of_variable(text) if _IDENTIFIER.fullmatch(text) else 0

    def output(self, pipelines: list[Pipeline]) -> int:
        held = 0
        for pipeline in pipelines:
            flow = 0
            for command in pipeline:
                flow = self.printed(command, flow)
            held |= flow
        return held

    def input_of(self, command: Command, incoming: int) -> int:
        held = incoming | self.compound_input | self.values(command.inputs)
        for region in command.files:
            held |= self.file(region)
        return held

    def file(self, region: Region) -> int:
        """The values in the file that a word names."""
        held = self.files.get(_file_name(region), 0)
        for part in region.parts:
            held |= self.output(part.body) if part.kind == "process" else 0
        return held

    def printed(self, command: Command, incoming: int) -> int:
        """The values in a command's output."""
        words, at = self.head(command)
        if at == len(words):
            return self.input_of(command, incoming)  # `$(< file)`
        if command.is_arithmetic:
            return 0
        name, args = program_of(words[at].text), words[at + 1 :]
        if name in self.functions:
            return self.values(args) | self.input_of(command, incoming) | self.all_output
        if name in _PRINTS_NEITHER or _is_number(name, " ".join(word.text for word in args)):
            return 0
        if name == "printf" and args:
            is_fixed = _FORMAT.fullmatch(args[0].text) and HOLE not in args[0].text
            if args[0].text == "-v":
                return 0
            return self.literal(args[0], args[0].text) if is_fixed else self.values(args)
        held = 0 if name in ("echo", "printf") else self.input_of(command, incoming)
        for word in args:
            held |= self.file(word)
        return held if name in _PRINTS_INPUT else held | self.values(args)

    def values(self, words: list[Region]) -> int:
        held = 0
        for word in words:
            held |= self.value(word)
        return held

    # --- where it goes --------------------------------------------------------------------

    def propagate(self) -> None:
        """Propagate values until a fixed point is reached. Raises TooDeep at the limit of passes."""
        for _ in range(_MAX_PASSES):
            before = dict(self.held), self.compound_input, self.all_output, dict(self.files)
            for command, incoming in self.commands():
                self.propagate_command(command, incoming)
            if before == (self.held, self.compound_input, self.all_output, self.files):
                return
        raise TooDeep

    def commands(self) -> Iterator[tuple[Command, int]]:
        """Every command with the values in its piped input."""
        for pipeline in self.pipelines:
            flow = 0
            for command in pipeline:
                yield command, flow
                first = command.words[0].text if command.words else ""
                # The output of a compound command is approximated by the output of all lines.
                is_end = first in _COMPOUND_ENDS and command is not pipeline[-1]
                flow = self.all_output if is_end else self.printed(command, flow)
                self.all_output |= flow

    def propagate_command(self, command: Command, incoming: int) -> None:
        words, at = self.head(command)
        stdin = self.input_of(command, incoming)
        first = words[0].text if words else ""
        opens = command.words[: len(command.words) - len(words)]
        if (opens or first in _COMPOUND_ENDS or first in ("exec", "for", "")) and stdin:
            self.compound_input |= stdin
        if first in self.functions:
            self.compound_input |= stdin
        printed = self.printed(command, incoming)
        for region in command.outputs:
            self.write(region, self.all_output if first in _COMPOUND_ENDS else printed)
        for word in words[:at]:
            self.assign(word)
        if at == len(words) or command.is_arithmetic:
            return
        name, args = words[at].text, words[at + 1 :]
        texts = [word.text for word in args]
        for word in args:
            if name == "tee" or any(part.kind == "process" for part in word.parts):
                self.write(word, printed)
        if name in ("for", "select") and args:
            listed = self.values(args[2:]) if texts[1:2] == ["in"] else self.values_of_variable(_POSITIONAL)
            self.add_values(texts[0], listed)
        elif name in DECLARERS:
            is_integer = any(re.match(r"-[A-Za-z]*i", text) for text in texts)
            for word in args:
                self.assign(word)
                if any(re.match(r"-[A-Za-z]*n", text) for text in texts):
                    self.references(word.text)
                if is_integer and not word.text.startswith("-"):
                    self.integers.add(re.split(r"\W", word.text)[0])
        elif name == "set" or name in self.functions:
            self.add_values(_POSITIONAL, self.values(args))
        elif name in ("read", "mapfile", "readarray"):
            names = [text for text in texts if re.fullmatch(r"[A-Za-z_]\w*", text)]
            for each in names or ["REPLY" if name == "read" else "MAPFILE"]:
                self.add_values(each, stdin or self.compound_input)
        elif name == "printf" and texts[:1] == ["-v"] and len(texts) > 2:
            if not (_FORMAT.fullmatch(texts[2]) and HOLE not in texts[2]):
                self.add_values(texts[1], self.values(args[2:]))
        elif name == "getopts":
            self.add_values("OPTARG", self.values_of_variable(_POSITIONAL) | self.values(args))
        else:
            self.pass_arguments(words[at:], stdin)

    def references(self, text: str) -> None:
        """Process `declare -n r=n`: both variables hold the values of each other."""
        name, _, other = text.partition("=")
        self.add_values(other, self.held.get(name, 0))
        self.add_values(name, self.held.get(other, 0))

    def pass_arguments(self, words: list[Region], stdin: int) -> None:
        """Pass the arguments after the code of `sh -c` to the positional parameters."""
        program = program_of(words[0].text)
        code = min(_code_indexes(words), default=0 if program == "parallel" else None)
        if code is not None:
            appended = stdin if program in APPENDS_INPUT else 0
            self.add_values(_POSITIONAL, self.values(words[code + 1 :]) | appended)
            self.compound_input |= stdin

    def write(self, region: Region, held: int) -> None:
        """Record values that are written to the file that a word names."""
        if any(part.kind == "process" and self.text.startswith(">", part.start) for part in region.parts):
            self.compound_input |= held
        elif held:
            name = _file_name(region)
            self.files[name] = self.files.get(name, 0) | held

    def assign(self, word: Region) -> None:
        found = ASSIGNMENT.match(word.text)
        if found:
            name = re.split(r"\W", found[0])[0]
            if assignment_hazard(self.text, name) is not None:  # a program runs the file that the value names
                held = self.files.get(word.text[found.end() :].removeprefix("./"), 0)
                for part in word.parts:
                    held |= self.output(part.body) if part.kind == "process" else 0
                self.add_values(name, held)
            # If the assigned text is a variable's name, it may be evaluated as that name.
            text = word.text[found.end() :]
            self.add_values(name, self.expanded(word) | self.literal(word, text) | self.evaluated_name(text))

    def exported(self) -> int:
        """The values in the exported variables."""
        names = re.findall(r"\b(?:export|declare -x|typeset -x)\s+([A-Za-z_]\w*)", self.text)
        held = 0
        for name in names:
            held |= self.held.get(name, 0)
        return held


def _is_number(name: str, args: str) -> bool:
    """Whether a filter with these arguments prints only numbers."""
    if not name.endswith("awk"):
        return name in _NUMERIC_ARGUMENTS and re.search(_NUMERIC_ARGUMENTS[name], args) is not None
    prints = [_PRINTS_NUMBER.fullmatch(each.strip()) for each in _PRINTS.findall(args)]
    sums = set(re.findall(r"(\w+)\s*(?:\+=|\+\+)", args)) | {None}
    return bool(prints) and all(each is not None and each[1] in sums for each in prints)


def _file_name(region: Region) -> str:
    return region.text.removeprefix("./")


def as_code(text: str) -> str:
    """A fixed text as code: the value of a setting, with escapes, and `$$` of make, resolved."""
    found = _SETTING.match(text)
    code = text[found.end() :] if found else text
    return code.replace("$$", "$").replace("\\n", "\n").replace("\\t", "\t")


def _code_indexes(words: list[Region]) -> list[int]:
    """The indexes of the code words of `sh -c`, for every word that may be a shell."""
    starts = (
        index
        for index, word in enumerate(words[:MAX_WORDS])
        if program_of(word.text) in SHELLS or (HOLE in word.text and not ASSIGNMENT.match(word.text))
    )
    found = (_code_index(words, start) for start in starts)
    return [index for index in found if index is not None]


def _code_index(words: list[Region], start: int) -> int | None:
    """The index of the code word of `sh -c`, after the options that may follow `-c`."""
    has_code = is_argument = False
    for index, word in enumerate(words[start + 1 : MAX_WORDS], start + 1):
        if not has_code:
            has_code = _OPTION_C.fullmatch(word.text) is not None
        elif word.text[:1] in ("-", "+") and not is_argument:
            is_argument = word.text[-1:] in ("o", "O")  # `-o errexit`
        elif not is_argument:
            return index
        else:
            is_argument = False
    return None
