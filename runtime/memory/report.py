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
from ..host.screen import Screen, counted, printable
from . import search
from .ignore import MAX_FILES, Listing, list_files
from .index import Index, Unusable, Update
from .recall import Answer, Request, index_folder, recall, with_index
from .rerank import rerank
from .terms import terms

# Texts of the reasons for excluding files, in singular and plural.
REASONS = {
    "binary": ("binary", "binary"),
    "large": ("larger than 1 MiB", "larger than 1 MiB"),
    "secret": ("may hold secrets", "may hold secrets"),
    "link": ("link", "links"),
    "special": ("not a regular file", "not regular files"),
    "unreadable": ("cannot be read", "cannot be read"),
    "too-many": (f"beyond {MAX_FILES:,}", f"beyond {MAX_FILES:,}"),
}
# Maximum number of excluded files that `--json` lists.
_MAX_LISTED = 1000


class Progress:
    """Progress display of indexing on a live terminal; appears if indexing takes long."""

    def __init__(self) -> None:
        self._screen = Screen(sys.stderr)
        self._shown_at = 0.0
        self._started_at = clock.monotonic()

    def __call__(self, done: int, count: int) -> None:
        now = clock.monotonic()
        if self._screen.is_live and now - self._started_at > 0.5 and now - self._shown_at > 0.1:
            self._shown_at = now
            self._screen.write(f"\r\x1b[Kindexing {done:,} of {count:,} files")

    def clear(self) -> None:
        if self._shown_at:
            self._screen.write("\r\x1b[K")


def _with_progress(root: str, action: Callable[[Progress], Any]) -> Any:
    """Run an action with a progress display; convert its errors to `Failure`."""
    progress = Progress()
    try:
        return action(progress)
    except Unusable as error:
        raise Failure("no-index", str(error)) from None
    except OSError as error:
        folder = os.path.abspath(root or ".")
        message = f"cannot list the files in {folder}: {reason(error)}"
        raise Failure("cannot-read", message) from None
    finally:
        progress.clear()


# --- llc index --------------------------------------------------------------------------------


def update_index(root: str, rebuild: bool) -> tuple[Update, Listing, list[str]]:
    """Verify and update the index; return the update, the listing and notices."""
    notices: list[str] = []

    def action(progress: Progress) -> tuple[Update, Listing, list[str]]:
        listing = list_files(root, _no_check)

        def use(index: Index) -> Update:
            index.verify()
            return index.update(listing, progress)

        return with_index(root, _no_check, notices, use, fresh=rebuild), listing, notices

    result: tuple[Update, Listing, list[str]] = _with_progress(root, action)
    return result


def _no_check() -> None:
    """Check that never stops, because Ctrl-C raises KeyboardInterrupt itself."""


def index_text(update: Update) -> str:
    totals = ((update.new, "new"), (update.changed, "changed"), (update.removed, "removed"))
    changes = [f"{number:,} {word}" for number, word in totals if number]
    lines = [f"{counted(update.files, 'file')} indexed: {', '.join(changes) or 'nothing has changed'}"]
    if update.left_out:
        excluded = sorted(update.reasons.items())
        reasons = [f"{number:,} {REASONS[name][number != 1]}" for name, number in excluded]
        lines.append(f"left out: {', '.join(reasons)}")
    return "\n".join(lines) + "\n"


def index_json(root: str, update: Update, listing: Listing, notices: list[str]) -> dict[str, Any]:
    return {
        "files": update.files,
        "new": update.new,
        "changed": update.changed,
        "removed": update.removed,
        "left_out": dict(sorted(update.reasons.items())),
        "left_out_files": [
            {"path": files.fsdecode(path), "reason": why} for path, why in update.left_out[:_MAX_LISTED]
        ],
        "listed_by": listing.by,
        "index": os.path.join(index_folder(root), "memory.sqlite"),
        "notices": notices,
        "duration_ms": round(update.seconds * 1000),
    }


# --- llc context ------------------------------------------------------------------------------


def answer_request(root: str, request: Request) -> Answer:
    """Search the project's files; a model ranks the matches if requested."""

    def action(progress: Progress) -> Answer:
        return recall(root, request, _no_check, progress)

    answer: Answer = _with_progress(root, action)
    if request.rerank and answer.matches:
        from ..models.judge import Judge  # imports the model's worker, which only re-ranking needs

        started_at = clock.monotonic()
        interrupt = Interrupt()
        judge = Judge()
        context = Context(
            run_id="", effect_id="", loop=None, state=None, iteration=None,
            elapsed_ms=lambda: round((clock.monotonic() - started_at) * 1000), interrupt=interrupt,
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
    """One line `path:line: text` for each match, the format of compilers and grep."""
    lines = []
    for match in answer.matches:
        path = printable(match.path).replace("\n", "?")
        if match.line is None:
            lines.append(path)
        else:
            lines.append(f"{path}:{match.line}: {printable(match.snippet or '')}")
    return "".join(f"{line}\n" for line in lines)


def nothing_text(answer: Answer, query: str) -> str:
    if not terms(query):
        return "there is no word to look for"
    return f"nothing found in {counted(answer.update.files, 'file')}"


def context_json(answer: Answer) -> dict[str, Any]:
    return {
        "matches": [search.as_map(match) for match in answer.matches],
        "files": answer.update.files,
        "notices": answer.notices,
    }
