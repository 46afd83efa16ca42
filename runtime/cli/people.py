"""The verb for people: answer."""

from __future__ import annotations

import sys

from ..host.errors import EXIT_OK
from ..host.screen import Screen, printable
from ..project.options import NUMBER, Option
from .declare import JSON, MAYBE, Argument, command
from .output import write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def complete_asking(incomplete: str) -> list[str]:
    """Runs that ask something, and the loops they are of."""
    from ..inspection import answer as answering

    found = answering.questions(None)
    names = dict.fromkeys(name for one in found for name in (one.run.name, one.run.id))
    return [name for name in names if name.startswith(incomplete)]


def complete_answer(given: dict[str, Any], incomplete: str) -> list[str]:
    """The choices of what the run asks."""
    from ..inspection import answer as answering

    target = given.get("target")
    found = answering.questions(target) if target else []
    return [choice for one in found for choice in one.choices if choice.startswith(incomplete)]


@command(
    (),
    Argument("target", MAYBE, "A run's id, or a loop's name: its last run.", "[RUN|LOOP]", complete_asking),
    Argument("answer", MAYBE, "The answer; without it, what is asked is shown.", "[ANSWER]", complete_answer),
    Option("question", "--question -q", NUMBER, "Which question, where several wait.", "N"),
    JSON,
    examples=("llc answer", "llc answer deploy", "llc answer deploy yes", "llc answer deploy -q 7 'not yet'"),
)
def answer(given: dict[str, Any]) -> int:
    from ..inspection import answer as answering

    if given["answer"] is None:
        found = answering.questions(given["target"])
        if given["json"]:
            write_json([one.to_json() for one in found])
        elif not found:
            write("nothing is asked\n")
        else:
            screen = Screen(sys.stdout)
            write("\n".join(one.as_text(screen) for one in found))
        return EXIT_OK
    question = answering.chosen(given["target"], given["question"])
    said = answering.answer(question, given["answer"])
    if given["json"]:
        write_json({**question.to_json(), "answer": said})
    else:
        again = "" if question.alive else f"; it goes on with: llc resume {question.run.id}"
        write(f"answered {question.run.id}: {printable(said)}{again}\n")
    return EXIT_OK
