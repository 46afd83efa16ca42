"""The subcommand `answer`."""

from __future__ import annotations

import sys

from ...host.errors import EXIT_OK
from ...host.screen import Screen, printable
from ...inspection import answer as answering
from .. import parameters as cli
from ..output import write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated


def answer(
    target: Annotated[
        cli.Text,
        cli.argument("[RUN|LOOP]", "A run's id, or a loop's name for its last run.", cli.complete_question),
    ] = None,
    answer: Annotated[
        cli.Text,
        cli.argument(
            "[ANSWER]", "The answer; without it, the open questions are shown.", cli.complete_answer
        ),
    ] = None,
    question: Annotated[
        cli.Count, cli.option("--question -q", "N", "Number of the question, if several are open.")
    ] = None,
    db: cli.RunsDatabase = None,
    json: cli.Json = False,
) -> int:
    """Answer a question of a run, or show the open questions.

    Examples:
        llc answer
        llc answer deploy
        llc answer deploy yes
        llc answer deploy -q 7 'not yet'
    """
    if answer is None:
        questions = answering.questions(target)
        if json:
            write_json([question.to_json() for question in questions])
        elif not questions:
            write("there is no open question\n")
        else:
            screen = Screen(sys.stdout)
            write("\n".join(question.as_text(screen) for question in questions))
        return EXIT_OK
    assert target is not None  # the argument before the answer
    open_question = answering.find_question(target, question)
    accepted = answering.answer(open_question, answer)
    if json:
        write_json({**open_question.to_json(), "answer": accepted})
    else:
        again = "" if open_question.alive else f"; resume it with: llc resume {open_question.run.id}"
        write(f"answered {open_question.run.id}: {printable(accepted)}{again}\n")
    return EXIT_OK
