"""Taint analysis of an action: values that reach a place where the shell evaluates them.

The data flow (`value_flow`) states what each variable, file and input holds. Values are evaluated in
arithmetic, in a subscript, as the name of a command, or in code that a shell or another program reads. A
fixed text that a shell evaluates is analysed as part of the action. A command whose name is not fixed may be
a shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from operator import or_

import attrs

from ...ir.python_internals import late_pattern
from .code_hazards import AS_OPTION, AS_OPTIONS, COMMAND, EVALUATED, IN_RUNNING_CODE
from .command_tree import Command, Region, TooDeep
from .command_words import PREFIXES, program_of, selects_command
from .expansions import HOLE
from .grammar import ASSIGNMENT, DECLARERS
from .hazards import Hazard
from .interpreters import (
    ARITHMETIC_TESTS,
    CODE_RUNS,
    FILTERS,
    INTERPRETERS,
    SHELLS,
    argument_hazard,
    assignment_hazard,
    input_hazard,
    may_be_command_options,
)
from .value_flow import APPENDS_INPUT, MAX_LENGTH, MAX_WORDS, ValueFlow, as_code, may_evaluate

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'', re.DOTALL)
_SUBSCRIPTED = late_pattern(r"[A-Za-z_]\w*\[([^\]]*)\]\+?=")

TOO_INTRICATE = Hazard(
    "unquotable-variable",
    "is in a command that is too complex to analyse",
    "move a part of the command into a script, and give it the value as an argument: `sh part.sh @`",
    plain=None,
)
CHECK = "check it first: `case $n in ''|*[!0-9]*) exit 2;; esac`, or compare with `[ … ]`"


def tainted_values(text: str, data: dict[int, bool]) -> dict[int, Hazard]:
    """The offsets of values in `text` that reach an evaluation, with the hazard."""
    if len(text) > MAX_LENGTH or not any(data.values()):
        return {}
    if not may_evaluate(text):
        return {}
    try:
        analysis = _TaintAnalysis(text, data)
        sinks = analysis.run()
    except TooDeep:
        return {at: TOO_INTRICATE for at, is_data in data.items() if is_data}
    found: dict[int, Hazard] = {}
    for held, hazard in sinks:
        for number, at in enumerate(analysis.holes):
            if held >> number & 1:
                before = found.setdefault(at, hazard)
                if len(hazard.plain or "") < len(before.plain or ""):
                    found[at] = attrs.evolve(before, plain=hazard.plain)
    return found


class _TaintAnalysis(ValueFlow):
    """Search for the values that are evaluated."""

    def run(self) -> list[tuple[int, Hazard]]:
        """The evaluated values with their hazards. Repeats until all fixed texts that a shell evaluates are
        added.
        """
        while True:
            self.propagate()
            found = list(self.sinks())
            read = reduce(or_, (held for held, hazard in found if hazard.is_shell), 0)
            codes = {as_code(text) for text, bit in self.literals.items() if read & bit}
            if codes <= self.inlined:
                return found
            for code in sorted(codes):
                self.inline(code, 0)

    def sinks(self) -> Iterator[tuple[int, Hazard]]:
        """The evaluated values with their hazards, for the current state of the analysis."""
        for held, start, end in self.evaluations():
            if held:
                yield held, self.hazard(start, end)
        for name, held in self.held.items():
            runner = assignment_hazard(self.text, name)
            if runner is not None:
                yield held, attrs.evolve(runner, message=f"reaches `{name}`: there it {runner.message}")
            elif name in self.special or name in self.integers:
                message = f"reaches `{name}`, which bash evaluates and may run"
                yield held, Hazard("variable-in-code", message, CHECK, plain=" \n")
        for command, incoming in self.commands():
            yield from self.readas_code(command, incoming)

    def hazard(self, start: int, end: int) -> Hazard:
        place = self.excerpt(start, end)
        message = f"reaches {place}, which bash evaluates and may run"
        return Hazard("variable-in-code", message, CHECK, plain=" \n")

    def excerpt(self, start: int, end: int) -> str:
        """A part of the text, shortened for messages."""
        place = " ".join(self.text[start:end].replace(HOLE, "…").replace("`", "'").split())
        return f"`{place if len(place) <= 40 else place[:39] + '…'}`"

    def evaluations(self) -> Iterator[tuple[int, int, int]]:
        """The values in places that bash evaluates by its syntax, with the extent of the place."""
        maps = set(re.findall(r"\b(?:declare|local|typeset)\s+-[A-Za-z]*A[A-Za-z]*\s+(\w+)", self.text))
        for part in self.expansions:
            held = 0
            for region, is_evaluated in part.regions:
                if is_evaluated and part.name not in maps:
                    held |= self.evaluated(region)
            if part.sign in ("!", "@P") and not any(r.text in ("@", "*") for r, _ in part.regions):
                held |= self.values_of_variable(part.name)
            yield held, part.start, part.end
        for pipeline in self.pipelines:
            for command in pipeline:
                if command.is_arithmetic:
                    region = command.words[0]
                    yield self.evaluated(region), region.start, region.end
                    continue
                yield from self.evaluated_words(*self.head(command), maps)

    def evaluated_words(self, words: list[Region], at: int, maps: set[str]) -> Iterator[tuple[int, int, int]]:
        is_declared = at < len(words) and words[at].text in DECLARERS
        for word in [*words[:at], *(words[at + 1 :] if is_declared else ())]:
            found = ASSIGNMENT.match(word.text)
            name = re.split(r"\W", found[0])[0] if found else ""
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

    def readas_code(self, command: Command, incoming: int) -> Iterator[tuple[int, Hazard]]:
        """The values in arguments or input that a program evaluates as code."""
        words, at = self.head(command)
        if at == len(words) or words[at].text in ("[[", "for", "case", "select", "let"):
            return
        texts = [word.text for word in words]
        place = self.excerpt(words[0].start, words[-1].end)
        name = program_of(texts[at])
        stdin = self.input_of(command, incoming)
        for held, hazard in self.code_arguments(words, at, stdin):
            if held and hazard is not None and hazard.severity == "error":
                yield held, attrs.evolve(hazard, message=f"reaches {place}: there it {hazard.message}")
        runs = CODE_RUNS.get(name)
        if runs is not None and any(runs.search(text) for text in texts[at + 1 : at + MAX_WORDS]):
            given = stdin | self.values(words) | self.exported()
            for word in words[at + 1 :]:
                given |= self.file(word)
            if given:
                message = f"reaches {place}, which {IN_RUNNING_CODE.message}"
                yield given, attrs.evolve(IN_RUNNING_CODE, message=message)
        is_script = name in ("source", ".") or name in SHELLS or HOLE in name
        held, hazard = (stdin, input_hazard(texts[: at + MAX_WORDS])) if stdin else (0, None)
        if hazard is None:
            held, hazard = 0, EVALUATED
            script = next((word for word in words[at + 1 :] if not word.text.startswith("-")), None)
            if name in FILTERS or name in ("make", "gmake", "psql"):
                script = next((after for word, after in pairwise(words[at:]) if word.text == "-f"), None)
            elif not is_script and not (name in INTERPRETERS and INTERPRETERS[name].has_script):
                script = None
            held |= self.file(script) if script is not None else 0
        if held:
            yield held, attrs.evolve(hazard, message=f"reaches {place}, and {hazard.message}")

    def is_path(self, word: Region) -> bool:
        """Whether a word is in double quotes and contains a fixed `/`, so that it can only name a file."""
        text = self.text[word.start : word.end]
        is_quoted = text[:1] == '"' == text[-1:] and text.count('"') == 2
        return is_quoted and "/" in word.text

    def is_split(self, word: Region) -> bool:
        """Whether the shell may split a word: it has an expansion outside double quotes, or `"$@"`."""
        text = self.text[word.start : word.end]
        return (
            re.search(r"[$`]", _QUOTED.sub("", text)) is not None or re.search(r"\$@|\[@\]", text) is not None
        )

    def code_arguments(self, words: list[Region], at: int, stdin: int) -> Iterator[tuple[int, Hazard | None]]:
        """The values in the arguments of a command, with the hazard of each place."""
        texts = [word.text for word in words[: at + MAX_WORDS]]
        if not self.is_path(words[at]):
            yield self.expanded(words[at], holes=False), COMMAND
        for index, word in enumerate(words[at + 1 : at + MAX_WORDS], at + 1):
            held = self.value(word, holes=False)
            if held:
                prefix = texts[index].partition(HOLE)[0]
                if selects_command(texts[:index], prefix, texts[index].rpartition(HOLE)[2], is_first=False):
                    yield held, COMMAND
                hazard = argument_hazard(texts[:index], prefix, is_first=False, is_array=False)
                is_split = self.is_split(word)
                if hazard is AS_OPTION and is_split:
                    hazard = attrs.evolve(hazard, help='write `-- "$v"`, so that it is not read as an option')
                yield held, hazard
                if is_split and may_be_command_options(program_of(texts[at]), texts[at + 1 : index]):
                    yield held, AS_OPTIONS
        name = program_of(texts[at])
        if name not in (*APPENDS_INPUT, "find"):
            return
        # These programs append their input, or the files they find, to the command, or replace `{}` by it.
        held = stdin if name != "find" else self.values(words[at + 1 :])
        marks = {"{}"} | {text[2:] or after for text, after in pairwise(texts) if text.startswith("-I")}
        for index, text in enumerate(texts[at + 1 :], at + 1):
            for mark in marks:
                if held and mark in text and not texts[index - 1].startswith("-I"):
                    yield (
                        held,
                        argument_hazard(
                            texts[:index], text.partition(mark)[0], is_first=False, is_array=False
                        ),
                    )
        if name != "find" and held:
            yield held, argument_hazard(texts, "", is_first=False, is_array=False)
            if len(texts) > at + 1 and texts[-1] in PREFIXES:
                yield held, COMMAND
