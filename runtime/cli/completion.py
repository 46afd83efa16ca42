"""How a line that is being typed may go on, and the script with which bash asks.

Shells ask as typer has it, with whose scripts the other shells do: `_LLC_COMPLETE` names the shell, other
variables the line. bash takes words apart at `:` and `=`, where the names and parameters of tasks have them;
typer's script leaves it at that.
"""

from __future__ import annotations

from ..host import environment
from ..host.errors import EXIT_FAILURE, EXIT_OK, UserError
from ..project.options import ANY, FLAG, MANY, PAIR, SOME
from . import declare, help
from .output import write_data
from .verbs import VERBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from ..project.options import Complete, Option
    from .declare import Verb

    # What a word may be, and what that means or ''.
    Offer = tuple[str, str]

# typer fills in the names with `%`.
BASH = r"""
%(complete_func)s() {
    # Words as llc has them: what no blank stands between is one.
    local words=() rest=$COMP_LINE word reply i n=-1
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((n < 0)) || [[ $rest == [[:space:]]* ]]; then
            words[++n]=$word
        else
            words[n]+=$word
        fi
        rest=${rest#"${rest%%%%[![:space:]]*}"}
        rest=${rest#"$word"}
    done
    # bash puts a reply in the place of its own last word, which may be the end of ours.
    local own=${COMP_WORDS[COMP_CWORD]}
    [[ $own == [:=] ]] && own=
    local kept=${words[n]%%"$own"}
    COMPREPLY=()
    while IFS= read -r reply; do
        [[ $reply == "$kept"?* ]] || continue
        reply=${reply#"$kept"}
        case $own in
            # What is typed goes on between its quotes.
            \'*) reply=${reply//\'/\'\\\'\'} ;;
            \"*)
                reply=${reply//\\/\\\\}
                reply=${reply//\"/\\\"}
                reply=${reply//\$/\\\$}
                reply=${reply//\`/\\\`}
                ;;
            *) printf -v reply '%%q' "$reply" ;;
        esac
        COMPREPLY+=("$reply")
    done < <(
        COMP_WORDS=$(printf '%%s\n' "${words[@]}") COMP_CWORD=$n %(autocomplete_var)s=complete_bash \
            "$1" 2>/dev/null
    )
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=/] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}

complete -o default -F %(complete_func)s %(prog_name)s
"""

_LINE = "_TYPER_COMPLETE_ARGS"


def answer(request: str) -> int | None:
    """Tell a shell how its line may go on; the exit code. None where it asks for something else.

    request: what it asks, such as `complete_bash`.
    """
    asked, _, shell = request.partition("_")
    if asked != "complete" or shell not in _SHELLS:
        return None
    read, tell = _SHELLS[shell]
    code = EXIT_OK
    try:
        # Shells take an offer from each line, so a name that has two cannot be told.
        offers = [offer for offer in following(*read()) if "\n" not in offer[0]]
    except Exception as error:
        # A line that is being typed is no place to say what is wrong.
        from ...ir.diagnostics import CompileError
        from ..journal.journal import JournalError

        if not isinstance(error, UserError | CompileError | JournalError):
            raise
        offers, code = [], EXIT_FAILURE
    if shell == "fish" and environment.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return EXIT_OK if offers else EXIT_FAILURE
    told = tell(offers) if code == EXIT_OK else ""
    if told:
        write_data(told + "\n")
    return code


def following(words: Sequence[str], start: str) -> Iterator[Offer]:
    """What may stand where `start` is being typed, behind `words`.

    UserError, CompileError or JournalError where the project's files do not say.
    """
    behind = iter(words)
    name = next((word for word in behind if not word.startswith("-")), None)
    if name is None:
        yield from ((verb, doc) for verb, doc in VERBS.items() if verb.startswith(start))
        yield from _names(help.PROGRAM, start, set(words))
    elif name in VERBS:
        yield from _of_verb(declare.find(name), list(behind), start)


def _of_verb(verb: Verb, words: list[str], start: str) -> Iterator[Offer]:
    by_name = {name: option for option in (*verb.options, help.HELP) for name in option.names}
    placed: list[str] = []
    given: set[str] = set()
    wanting: Option | None = None
    are_placed = False
    for word in words:
        if wanting is not None:
            wanting = None
        elif are_placed or not word.startswith("-") or word == "-":
            placed.append(word)
            are_placed = are_placed or verb.is_open
        elif word == "--":
            are_placed = True
        else:
            name, sign, _ = word.partition("=")
            option = by_name.get(name)
            if option is not None:
                given.update(option.names if option.kind not in (PAIR, MANY) else ())
                wanting = option if option.kind != FLAG and not sign else None
    name, sign, value = start.partition("=")
    if wanting is not None:
        yield from _values(wanting.complete, {}, start)
    elif are_placed or not start.startswith("-"):
        yield from _arguments(verb, placed, start)
    elif sign:
        if name in by_name:
            yield from ((f"{name}={offer}", "") for offer, _ in _values(by_name[name].complete, {}, value))
    else:
        yield from _names((*verb.options, help.HELP), start, given)


def _names(options: Iterable[Option], start: str, given: set[str]) -> Iterator[Offer]:
    """The names of options that were not given, where one is being typed."""
    if start.startswith("-"):
        for option in options:
            yield from (
                (name, option.doc) for name in option.names if name.startswith(start) and name not in given
            )


def _arguments(verb: Verb, placed: list[str], start: str) -> Iterator[Offer]:
    values: dict[str, Any] = {}
    for argument in verb.arguments:
        is_list = argument.count in (SOME, ANY)
        if is_list or not placed:
            yield from _values(
                argument.complete, {**values, argument.name: placed} if placed else values, start
            )
            return
        values[argument.name] = placed.pop(0)


def _values(complete: Complete | None, values: dict[str, Any], start: str) -> Iterator[Offer]:
    if complete is not None:
        takes_values = complete.__code__.co_argcount > 1
        found = complete(values, start) if takes_values else complete(start)  # type: ignore[call-arg,arg-type]
        yield from ((word, "") for word in found)


# --- the shells ---------------------------------------------------------------------------------


def _from_bash() -> tuple[list[str], str]:
    words = _split(environment.environ.get("COMP_WORDS", ""))
    at = int(environment.environ.get("COMP_CWORD", "0"))
    return words[1:at], words[at] if at < len(words) else ""


def _from_line() -> tuple[list[str], str]:
    line = environment.environ.get(_LINE, "")
    words = _split(line)[1:]
    return (words[:-1], words[-1]) if words and not line.endswith(" ") else (words, "")


def _from_powershell() -> tuple[list[str], str]:
    words = _split(environment.environ.get(_LINE, ""))[1:]
    start = environment.environ.get("_TYPER_COMPLETE_WORD_TO_COMPLETE", "")
    return words[:-1] if start else words, start


def _split(line: str) -> list[str]:
    """A line's words as a shell has them; quotes may still be open at its end."""
    import shlex

    reader = shlex.shlex(line, posix=True)
    reader.whitespace_split = True
    reader.commenters = ""
    words = []
    try:
        for word in reader:
            words.append(word)
    except ValueError:
        words.append(reader.token)
    return words


def _to_bash(offers: list[Offer]) -> str:
    return "\n".join(word for word, _ in offers)


def _to_zsh(offers: list[Offer]) -> str:
    if offers and all(word.endswith(("=", "/")) for word, _ in offers):
        import shlex

        # More is to be typed right behind it.
        return "compadd -S '' -- " + " ".join(shlex.quote(word) for word, _ in offers)
    rows = (":".join(f'"{_escaped(text)}"' for text in offer if text) for offer in offers)
    return "_arguments '*: :((" + "\n".join(rows) + "))'" if offers else "_files"


def _escaped(text: str) -> str:
    for sign, escaped in (('"', '""'), ("'", "''"), ("$", "\\$"), ("`", "\\`"), (":", "\\\\:")):
        text = text.replace(sign, escaped)
    return text


def _to_fish(offers: list[Offer]) -> str:
    return "\n".join("\t".join(filter(None, offer)) for offer in offers)


def _to_powershell(offers: list[Offer]) -> str:
    return "\n".join(f"{word}:::{doc or ' '}" for word, doc in offers)


# How each shell says where it stands, and is told.
_SHELLS: dict[str, tuple[Callable[[], tuple[list[str], str]], Callable[[list[Offer]], str]]] = {
    "bash": (_from_bash, _to_bash),
    "zsh": (_from_line, _to_zsh),
    "fish": (_from_line, _to_fish),
    "powershell": (_from_powershell, _to_powershell),
    "pwsh": (_from_powershell, _to_powershell),
}
