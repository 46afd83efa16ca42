"""Output of `llc index` and `llc context`, as text and as JSON."""

from __future__ import annotations

import os.path
import sys
from collections.abc import Callable
from typing import Any

from ...ir.diagnostics import nearest
from ..host import clock, files
from ..host.effect_context import Context, Interrupt
from ..host.errors import Failure, UserError, reason
from ..host.screen import Screen, printable
from . import search
from .ignore import MOST_FILES, Listing, list_files
from .index import Index, Unusable, Update
from .recall import Answer, Request, recall, search_place, with_index
from .rerank import rerank
from .terms import terms

# Reasons for excluding files, in singular and plural.
REASONS = {
    "binary": ("binary", "binary"),
    "large": ("larger than 1 MiB", "larger than 1 MiB"),
    "secret": ("may hold secrets", "may hold secrets"),
    "link": ("link", "links"),
    "special": ("no regular file", "no regular files"),
    "unreadable": ("cannot be read", "cannot be read"),
    "too-many": (f"beyond {MOST_FILES:,}", f"beyond {MOST_FILES:,}"),
}
# Names of files that are listed with `--json`.
_MOST_NAMED = 1000


class Progress:
    """Progress of indexing on a live terminal, shown if it takes long."""

    def __init__(self) -> None:
        self._screen = Screen(sys.stderr)
        self._shown = 0.0
        self._began = clock.monotonic()

    def __call__(self, done: int, count: int) -> None:
        now = clock.monotonic()
        if self._screen.is_live and now - self._began > 0.5 and now - self._shown > 0.1:
            self._shown = now
            self._screen.write(f"\r\x1b[Kindexing {done:,} of {count:,} files")

    def clear(self) -> None:
        if self._shown:
            self._screen.write("\r\x1b[K")


def _guarded(root: str, act: Callable[[Progress], Any]) -> Any:
    progress = Progress()
    try:
        return act(progress)
    except Unusable as error:
        raise Failure("no-index", str(error)) from None
    except OSError as error:
        where = os.path.abspath(root or ".")
        message = f"cannot look through {where}: {reason(error)}"
        raise Failure("cannot-read", message) from None
    finally:
        progress.clear()


# --- llc index --------------------------------------------------------------------------------


def bring_up_to_date(root: str, rebuild: bool) -> tuple[Update, Listing, list[str]]:
    """Verify and update the index; the update, the listing and notices."""
    notices: list[str] = []

    def act(progress: Progress) -> tuple[Update, Listing, list[str]]:
        listing = list_files(root, _go_on)

        def use(index: Index) -> Update:
            index.verify()
            return index.update(listing, progress)

        return with_index(root, _go_on, notices, use, fresh=rebuild), listing, notices

    found: tuple[Update, Listing, list[str]] = _guarded(root, act)
    return found


def _go_on() -> None:
    """Ctrl-C raises by itself."""


def index_text(update: Update) -> str:
    what = _count(update.files, "file") + " indexed"
    done = [
        f"{number:,} {word}"
        for number, word in ((update.new, "new"), (update.changed, "changed"), (update.removed, "removed"))
        if number
    ]
    lines = [f"{what}: {', '.join(done) or 'nothing has changed'}"]
    if update.left_out:
        reasons = sorted(update.reasons.items())
        shown = [f"{number:,} {REASONS[why][number != 1]}" for why, number in reasons]
        lines.append(f"left out: {', '.join(shown)}")
    return "\n".join(lines) + "\n"


def index_json(root: str, update: Update, listing: Listing, notices: list[str]) -> dict[str, Any]:
    return {
        "files": update.files,
        "new": update.new,
        "changed": update.changed,
        "removed": update.removed,
        "left_out": dict(sorted(update.reasons.items())),
        "left_out_files": [
            {"path": files.fsdecode(path), "reason": why} for path, why in update.left_out[:_MOST_NAMED]
        ],
        "listed_by": listing.by,
        "index": os.path.join(search_place(root), "memory.sqlite"),
        "notices": notices,
        "duration_ms": round(update.seconds * 1000),
    }


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


# --- llc context ------------------------------------------------------------------------------


def look_up(root: str, request: Request) -> Answer:
    """Search, re-ranked by a model if requested."""

    def act(progress: Progress) -> Answer:
        return recall(root, request, _go_on, progress)

    answer: Answer = _guarded(root, act)
    if request.rerank and answer.matches:
        from ..models.judge import Judge  # only where a model is asked: it loads the model's worker

        began = clock.monotonic()
        interrupt = Interrupt()
        judge = Judge()
        context = Context(
            run_id="", effect_id="", loop=None, state=None, iteration=None,
            elapsed_ms=lambda: round((clock.monotonic() - began) * 1000), interrupt=interrupt,
        )  # fmt: skip
        try:
            matches, _ = rerank(
                request.words,
                request.model,
                request.limit,
                answer.matches,
                None,
                context,
                judge.perform,
                answer.notices,
            )
        finally:
            judge.close()
            interrupt.close()
        answer = answer._replace(matches=matches)
    return answer


def check_strategy(strategy: str) -> None:
    """Raise UserError for an unknown strategy."""
    if strategy not in search.STRATEGIES:
        near = nearest(strategy, search.STRATEGIES)
        help = f"did you mean `{near}`?" if near else "there are content and metadata"
        raise UserError("unknown-choice", f"there is no strategy `{strategy}`", help)


def context_text(answer: Answer) -> str:
    """`path:line: text` for each match, as compilers and grep write places."""
    lines = []
    for match in answer.matches:
        place = printable(match.path).replace("\n", "?")
        if match.line is None:
            lines.append(place)
        else:
            lines.append(f"{place}:{match.line}: {printable(match.snippet or '')}")
    return "".join(f"{line}\n" for line in lines)


def nothing_text(answer: Answer, query: str) -> str:
    if not terms(query):
        return "there is no word to look for"
    return f"nothing found in {_count(answer.update.files, 'file')}"


def context_json(answer: Answer) -> dict[str, Any]:
    return {
        "matches": [search.as_map(match) for match in answer.matches],
        "files": answer.update.files,
        "notices": answer.notices,
    }
