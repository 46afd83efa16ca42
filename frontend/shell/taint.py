"""Taint analysis of an action: values that reach a place where the shell evaluates them.

A quoted value is data in its own place. But it can reach a shell variable through `read`, `for`,
`set --`, `$(echo …)` and similar commands, and the variable can be used in arithmetic, in a subscript,
or in the input of `sh`. The analysis follows values through one action, independent of the order of
its lines. Its findings are warnings; no finding does not prove that an action is safe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .command_tree import KEYWORDS, Command, Outline, Part, Pipeline, Region, TooDeep
from .expansions import HOLE
from .grammar import ASSIGNMENT, DECLARERS
from .hazards import Hazard
from .interpreters import (
    ARITHMETIC_TESTS,
    EVALUATED,
    PREFIXES,
    SHELLS,
    evaluated_names,
    input_reader,
    program_of,
    reader_of,
)

# Longer commands are not analysed; the system would not start them either (128 KiB).
MAX_LENGTH = 1 << 16
# A text without any of these evaluates nothing; most actions have none.
_EVALUATES = re.compile(
    r"\(\(|\$\[|\[\[|\b(?:let|eval|trap|source|declare|typeset|local|unset|read|mapfile|readarray|watch)\b"
    r"|\s-[vR]\s|\w\[|\$\{!|@P\}|\$\{[^}]*:|[A-Z]=|(?:^|[\s;&|({/])(?:\.|\w*sh|env|python[\d.]*|perl|ruby|node"
    r"|php|psql|mysql|mariadb|ssh|su|export|readonly|compgen|complete)(?:[\s;|&()<>]|\Z)"
)
# Limit of passes over the lines; a value that flows against their order needs one more pass.
_ROUNDS = 12
# Limit of words analysed in a command; each is judged by all words before it.
_WORDS = 40
_POSITIONAL = "@"
_ENDS = frozenset({"done", "fi", "esac", "}"})
_SPEAKERS = frozenset({"echo", "printf", "basename", "dirname", "realpath", "readlink"})
# Programs that print their input, or parts of it.
_FILTERS = frozenset(
    {
        "cat",
        "head",
        "tail",
        "tac",
        "rev",
        "sort",
        "uniq",
        "tr",
        "sed",
        "cut",
        "paste",
        "column",
        "fold",
        "fmt",
    }
    | {"awk", "gawk", "mawk", "grep", "egrep", "jq", "tee", "xargs"}
)
# With these options, filters print a number.
_COUNTS = {
    "tr": r"\A-[A-Za-z]*c|\A--complement|\A-[a-z]*d\Z",
    "sed": r"\[[!^]\\?-?0-9",
    "grep": r"\A-[A-Za-z]*[cq]|\[0-9\]|\\d",
    "egrep": r"\A-[A-Za-z]*[cq]|\[0-9\]|\\d",
    "jq": r"\blength\b|\btonumber\b",
    **dict.fromkeys(("awk", "gawk", "mawk"), r"\+=|\+\+|\bNR\b|\blength\b|\bint\("),
}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_SUBSCRIPTED = re.compile(r"[A-Za-z_]\w*\[([^\]]*)\]\+?=")
_DIGITS_LEFT = re.compile(r"\A/{1,2}\[[!^]\\?-?0-9\]")
_FORMAT = re.compile(r"(?:[^%]|%%|%[-+ #0-9.]*[diouxXeEfFgGaA])*")

CHECK = "check it first: `case $n in ''|*[!0-9]*) exit 2;; esac`, or compare with `[ … ]`"


def _checked(text: str) -> set[str]:
    """The shell variables that the text checks to be numbers."""
    variable = r"\"?\$\{?([A-Za-z_0-9]+)\}?\"?"
    leave = r"\{?\s*(?:exit|return|continue|break)\b"
    patterns = (
        rf"\bcase\s+{variable}\s+in\b[^)]*\*\[[!^]\\?-?0-9\]\*",
        rf"\[\[\s+(?:!\s+)?{variable}\s+=~\s+\^[-+?(\\]*(?:\[0-9\]|\[\[:digit:\]\])[+*]\)?\$",
        rf"\[\s+{variable}\s+-(?:eq|ne|lt|le|gt|ge)\s+\S+\s+\][^\n|;&]*(?:2>&1[ \t]*)?\|\|\s+{leave}",
    )
    return {name for pattern in patterns for name in re.findall(pattern, text)}


def tainted_places(text: str, data: dict[int, bool]) -> dict[int, Hazard]:
    """The places of values in `text` that reach an evaluation, with the hazard."""
    if len(text) > MAX_LENGTH or not any(data.values()) or _EVALUATES.search(text) is None:
        return {}
    try:
        analysis = _TaintAnalysis(text, data)
        analysis.follow()
    except TooDeep:
        return {}
    found: dict[int, Hazard] = {}
    for held, hazard in analysis.sinks():
        for number, at in enumerate(analysis.holes):
            if held >> number & 1:
                found.setdefault(at, hazard)
    return found


class _TaintAnalysis:
    """Sets of values are bits of a number, one for each hole that holds data."""

    def __init__(self, text: str, data: dict[int, bool]) -> None:
        self.text = text
        self.holes = [at for at, is_data in data.items() if is_data]
        self.bits = {at: 1 << number for number, at in enumerate(self.holes)}
        outline = Outline(text)
        self.pipelines: list[Pipeline] = outline.pipelines
        self.expansions: list[Part] = outline.expansions
        self.functions = outline.functions
        self.top = outline.top
        self.checked = _checked(text)
        self.held: dict[str, int] = {}
        self.special = evaluated_names(text)
        self.integers: set[str] = set()
        # Values in the input of compound commands, where the reading command is unknown.
        self.loose = 0
        for command in [command for pipeline in self.pipelines for command in pipeline]:
            self.inline_code(command)

    def inline_code(self, command: Command) -> None:
        """`bash -c '…' _ args`: the code is as if it stood in the text, and has its own `$1`."""
        words = command.words
        for index, word in enumerate(words):
            if program_of(word.text) in SHELLS and len(words) > index + 2:
                code = next((i for i in range(index + 1, len(words) - 1) if _is_option_c(words[i])), None)
                if code is not None and self.text[words[code + 1].start] == "'":
                    inner = Outline(self.text, words[code + 1].start + 1, words[code + 1].end - 1)
                    self.pipelines += inner.pipelines
                    self.expansions += inner.expansions
                    self.functions |= inner.functions
                return

    # --- what texts hold ------------------------------------------------------------------

    def give(self, name: str, held: int) -> None:
        if held and name not in self.checked:
            self.held[name] = self.held.get(name, 0) | held

    def named(self, name: str) -> int:
        is_positional = bool(name) and (name.isdigit() or name in "@*")
        if name in self.checked:
            return 0
        return self.held.get(_POSITIONAL if is_positional and name != "0" else name, 0)

    def value(self, region: Region, *, holes: bool = True) -> int:
        """What the text of a region holds once it is expanded."""
        held = 0
        for part in region.parts:
            held |= self.value_of(part, holes=holes)
        return held

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
                held = self.named(part.name)
                for region in rest:
                    held |= self.value(region, holes=holes)
                return held
        return 0

    def evaluated(self, region: Region) -> int:
        """What arithmetic on a region evaluates, names without a `$` too; direct values apart."""
        held = self.value(region, holes=False)
        for name in _IDENTIFIER.findall(region.text):
            held |= self.named(name)
        return held

    def output(self, pipelines: list[Pipeline]) -> int:
        held = 0
        for pipeline in pipelines:
            flow = 0
            for command in pipeline:
                flow = self.printed(command, flow)
            held |= flow
        return held

    def input_of(self, command: Command, incoming: int) -> int:
        held = incoming | self.values(command.inputs)
        for part in [part for region in command.files for part in region.parts]:
            held |= self.output(part.body) if part.kind == "process" else 0
        return held

    def printed(self, command: Command, incoming: int) -> int:
        """What a command's output holds."""
        words = _behind_keywords(command.words)
        at = _command_at(words)
        if at == len(words) or command.is_arithmetic:
            return 0
        name, args = program_of(words[at].text), words[at + 1 :]
        if name in _SPEAKERS:
            first = args[0] if args else None
            if (
                name == "printf"
                and first is not None
                and (first.text == "-v" or (_FORMAT.fullmatch(first.text) and HOLE not in first.text))
            ):
                return 0
            return self.values(args)
        if name in self.functions:
            return self.values(args) | self.input_of(command, incoming)
        if name in _FILTERS:
            counts = _COUNTS.get(name)
            if counts is not None and any(re.search(counts, word.text) for word in args):
                return 0
            return self.input_of(command, incoming)
        return 0

    def values(self, words: list[Region]) -> int:
        held = 0
        for word in words:
            held |= self.value(word)
        return held

    # --- where it goes --------------------------------------------------------------------

    def follow(self) -> None:
        """Propagate values until a fixed point, or the limit of passes, is reached."""
        for _ in range(_ROUNDS):
            before = dict(self.held), self.loose
            for command, incoming in self.commands():
                self.spread(command, incoming)
            if before == (self.held, self.loose):
                break

    def commands(self) -> Iterator[tuple[Command, int]]:
        """Every command with what the pipe before it brings."""
        everything = self.output(self.top)
        for pipeline in self.pipelines:
            flow = 0
            for command in pipeline:
                yield command, flow
                first = command.words[0].text if command.words else ""
                # The output of a loop is that of all its lines, which are not distinguished.
                is_end = first in _ENDS and command is not pipeline[-1]
                flow = everything if is_end else self.printed(command, flow)

    def spread(self, command: Command, incoming: int) -> None:
        words = _behind_keywords(command.words)
        stdin = self.input_of(command, incoming)
        first = words[0].text if words else ""
        opens = command.words[: len(command.words) - len(words)]
        if (opens or first in _ENDS or first in ("exec", "for", "")) and stdin:
            self.loose |= stdin
        if first in self.functions:
            self.loose |= stdin
        at = _command_at(words)
        for word in words[:at]:
            self.assign(word)
        if at == len(words) or command.is_arithmetic:
            return
        name, args = words[at].text, words[at + 1 :]
        texts = [word.text for word in args]
        if name in ("for", "select") and args:
            listed = self.values(args[2:]) if texts[1:2] == ["in"] else self.named(_POSITIONAL)
            self.give(texts[0], listed)
        elif name in DECLARERS:
            is_integer = any(re.match(r"-[A-Za-z]*i", text) for text in texts)
            for word in args:
                self.assign(word)
                if is_integer and not word.text.startswith("-"):
                    self.integers.add(re.split(r"\W", word.text)[0])
        elif name == "set" or name in self.functions:
            self.give(_POSITIONAL, self.values(args))
        elif name in ("read", "mapfile", "readarray"):
            names = [text for text in texts if re.fullmatch(r"[A-Za-z_]\w*", text)]
            for each in names or ["REPLY" if name == "read" else "MAPFILE"]:
                self.give(each, stdin or self.loose)
        elif name == "printf" and texts[:1] == ["-v"] and len(texts) > 2:
            if not (_FORMAT.fullmatch(texts[2]) and HOLE not in texts[2]):
                self.give(texts[1], self.values(args[2:]))
        elif name == "getopts":
            self.give("OPTARG", self.named(_POSITIONAL) | self.values(args))
        elif program_of(name) in SHELLS:
            code = next((i for i, word in enumerate(args) if _is_option_c(word)), len(args))
            self.give(_POSITIONAL, self.values(args[code + 2 :]))
            self.loose |= stdin

    def assign(self, word: Region) -> None:
        found = ASSIGNMENT.match(word.text)
        if found:
            self.give(re.split(r"\W", found[0])[0], self.value(word))

    # --- where it is evaluated ------------------------------------------------------------

    def sinks(self) -> Iterator[tuple[int, Hazard]]:
        """Values that are evaluated, with the warning."""
        for held, start, end in self.evaluations():
            if held:
                yield held, self.hazard(start, end)
        for command, incoming in self.commands():
            yield from self.read_as_code(command, incoming)

    def hazard(self, start: int, end: int) -> Hazard:
        place = self.short(start, end)
        message = f"reaches {place}, which bash evaluates and may run"
        return Hazard("variable-in-code", message, CHECK, "warning")

    def short(self, start: int, end: int) -> str:
        """A place in the text as it is shown."""
        place = " ".join(self.text[start:end].replace(HOLE, "…").replace("`", "'").split())
        return f"`{place if len(place) <= 40 else place[:39] + '…'}`"

    def evaluations(self) -> Iterator[tuple[int, int, int]]:
        """The values in places that bash evaluates by its syntax, with the span of the place."""
        maps = set(re.findall(r"\b(?:declare|local|typeset)\s+-[A-Za-z]*A[A-Za-z]*\s+(\w+)", self.text))
        for part in self.expansions:
            held = 0
            for region, is_evaluated in part.regions:
                if is_evaluated and part.name not in maps:
                    held |= self.evaluated(region)
            if part.sign in ("!", "@P") and not any(r.text in ("@", "*") for r, _ in part.regions):
                held |= self.named(part.name)
            yield held, part.start, part.end
        for pipeline in self.pipelines:
            for command in pipeline:
                if command.is_arithmetic:
                    region = command.words[0]
                    yield self.evaluated(region), region.start, region.end
                    continue
                words = _behind_keywords(command.words)
                yield from self.evaluated_words(words, maps)

    def evaluated_words(self, words: list[Region], maps: set[str]) -> Iterator[tuple[int, int, int]]:
        at = _command_at(words)
        special = self.special | self.integers
        is_declared = at < len(words) and words[at].text in DECLARERS
        for word in [*words[:at], *(words[at + 1 :] if is_declared else ())]:
            found = ASSIGNMENT.match(word.text)
            name = re.split(r"\W", found[0])[0] if found else ""
            if name in special:
                yield self.value(word, holes=False), word.start, word.end
            subscripted = _SUBSCRIPTED.match(word.text)
            if subscripted and name not in maps:
                before = word.text[: subscripted.start(1)].count(HOLE)
                count = subscripted[1].count(HOLE)
                inside = Region(word.start, word.end, subscripted[1], word.parts[before : before + count])
                yield self.evaluated(inside), word.start, word.end
        if at == len(words):
            return
        start, end = words[0].start, words[-1].end
        match words[at].text:
            case "let":
                for word in words[at + 1 :]:
                    yield self.evaluated(word), start, end
            case "[[":
                for index, word in enumerate(words[at + 1 : -1], at + 1):
                    if word.text in ARITHMETIC_TESTS:
                        yield self.evaluated(words[index - 1]) | self.evaluated(words[index + 1]), start, end
                    elif word.text == "-v":
                        yield self.value(words[index + 1], holes=False), start, end

    def read_as_code(self, command: Command, incoming: int) -> Iterator[tuple[int, Hazard]]:
        """The values in arguments or input that a program evaluates as code."""
        words = _behind_keywords(command.words)
        at = _command_at(words)
        if at == len(words) or words[at].text in ("[[", "for", "case", "select", "let"):
            return
        texts = [word.text for word in words]
        place = self.short(words[0].start, words[-1].end)
        for index in range(at + 1, min(len(words), at + _WORDS)):
            held = self.value(words[index], holes=False)
            if not held:
                continue
            prefix = texts[index].partition(HOLE)[0]
            hazard = reader_of(texts[:index], prefix, is_first=False, is_array=False)
            if hazard is not None and hazard.severity == "error":
                message = f"reaches {place}: there it {hazard.message}"
                yield held, Hazard(hazard.id, message, hazard.help, "warning")
        held = self.input_of(command, incoming)
        is_file = texts[at] in ("source", ".") or program_of(texts[at]) in SHELLS
        if is_file and at + 1 < len(words) and words[at + 1].text == HOLE:
            part = words[at + 1].parts[0]
            hazard = EVALUATED
            held = self.output(part.body) if part.kind == "process" else 0
        else:
            hazard = input_reader(texts[: at + _WORDS])
        if held and hazard is not None:
            yield (
                held,
                Hazard(hazard.id, f"reaches {place}, and {hazard.message}", hazard.help, "warning"),
            )


def _is_option_c(word: Region) -> bool:
    return re.fullmatch(r"-[A-Za-z]*c", word.text) is not None


def _behind_keywords(words: list[Region]) -> list[Region]:
    at = 0
    while at < len(words) and words[at].is_bare and words[at].text in KEYWORDS:
        at += 1
    return words[at:]


def _command_at(words: list[Region]) -> int:
    """The index of the word that names the command, behind assignments and words such as `sudo`."""
    for index, word in enumerate(words):
        is_prefix = word.text in PREFIXES or (index and word.text.startswith("-"))
        if not is_prefix and not ASSIGNMENT.match(word.text):
            return index
    return len(words)
