"""Words of a command line: which word names the command, behind assignments and programs such as `sudo`.

Owns the tables of the programs that run the command in their arguments. The tables are incomplete.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from ...ir.python_internals import late_pattern
from .grammar import ASSIGNMENT

# Programs that run the command after their options, with the options that take an argument.
NO_OPTION = late_pattern(r"(?!)")
PREFIXES: dict[str, re.Pattern[str]] = {
    **dict.fromkeys(("builtin", "nohup", "setsid"), NO_OPTION),
    **dict.fromkeys(("sudo", "doas"), late_pattern(r"-[A-Za-z]*[CDghpRrTtUu]|--(?:user|group|chdir|host)")),
    "command": late_pattern(r"-p?[vV]"),  # these options describe a command and run none
    "env": late_pattern(r"-[A-Za-z0]*[uC]|--(?:unset|chdir)"),
    "exec": late_pattern(r"-[cl]*a"),
    "nice": late_pattern(r"-n|--adjustment"),
    "time": late_pattern(r"-[A-Za-z]*[of]|--(?:output|format)"),
    "timeout": late_pattern(r"-[ks]|--(?:kill-after|signal)"),
    "ionice": late_pattern(r"-[cnpPu]|--(?:class|classdata)"),
    "stdbuf": late_pattern(r"-[ioe]|--(?:input|output|error)"),
}
# Other programs that run a command: options that take an argument, and the number of operands before the
# command.
OPERANDS_BEFORE_COMMAND: dict[str, tuple[re.Pattern[str], int]] = {
    "xargs": (late_pattern(r"-[0rtpx]*[adEILnPs]"), 0),
    "parallel": (late_pattern(r"-[kqtuvX0]*[adIjLNnPS]|--(?:jobs|joblog|colsep|delay|results|tmpdir)"), 0),
    "flock": (late_pattern(r"-[A-Za-z]*[wE]|--(?:timeout|conflict-exit-code)"), 1),
    "chroot": (NO_OPTION, 1),
    "taskset": (NO_OPTION, 1),
    "chrt": (late_pattern(r"-[TPD]"), 1),
    **dict.fromkeys(("strace", "ltrace"), (late_pattern(r"-[A-Za-z]*[aAbeEIoOpPsSuUX]"), 0)),
    "unshare": (late_pattern(r"-[RwSGl]"), 0),
    "nsenter": (late_pattern(r"-[tSG]"), 0),
    **dict.fromkeys(("busybox", "valgrind"), (NO_OPTION, 0)),
}


@lru_cache(4096)
def program_of(word: str) -> str:
    """The program that a command word names, without folders and version number."""
    return re.sub(r"(?<=[^0-9.])[0-9.]+\Z", "", word.rsplit("/", 1)[-1])


def command_at(words: Sequence[str]) -> int:
    """The index of the word that names the command, after assignments and prefixes such as `sudo`.

    If there is no such word yet, the result is the number of words if the next word is the name, and more if
    the next word is the argument of an option.
    """
    prefix = ""
    is_argument = is_duration = False
    for index, word in enumerate(words):
        if is_argument:
            is_argument = False
        elif word in PREFIXES:
            prefix = word
            is_duration = word == "timeout"
        elif word.startswith("-") and (prefix or not index):
            is_argument = prefix != "" and PREFIXES[prefix].fullmatch(word) is not None
        elif is_duration:
            is_duration = False
        elif not ASSIGNMENT.match(word) and not (prefix == "env" and "=" in word):
            return index
    return len(words) + (is_argument or is_duration)


def word_at(words: Sequence[str], at: int) -> str:
    return words[at] if at < len(words) else ""


def selects_command(words: Sequence[str], prefix: str, rest: str, *, is_first: bool) -> bool:
    """Whether a variable is all or part of the name of a command, and could select any command.

    prefix: text of the word before the variable. rest: text after it. A name with a fixed `/` is the path of
    a file, as in `sh FILE`, and cannot be a builtin.
    """
    if "/" in prefix or rest.startswith("/") or ASSIGNMENT.match(prefix):
        return False
    at = command_at(words)
    if is_first or at >= len(words):
        return is_first or (at == len(words) > 0)
    program = program_of(words[at])
    if program == "find":
        return words[-1] in ("-exec", "-execdir", "-ok", "-okdir")
    if program not in OPERANDS_BEFORE_COMMAND or prefix.startswith("-"):
        return False
    with_argument, count = OPERANDS_BEFORE_COMMAND[program]
    return (
        not with_argument.fullmatch(words[-1]) and len(operands_of(words[at + 1 :], with_argument)) == count
    )


def operands_of(words: Sequence[str], with_argument: re.Pattern[str]) -> list[str]:
    """The words that are neither options nor arguments of options that match `with_argument`."""
    found = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-") and len(word) > 1:
            skip = with_argument.fullmatch(word) is not None
        else:
            found.append(word)
    return found
