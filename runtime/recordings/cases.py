"""Recorded cases: runs as readable files that `llc test` replays; `spec/testing.md`.

Owns the data of a case, the keywords of its format, and the search for case files. `case_reader` and
`case_writer` convert between a `Case` and its file.
"""

from __future__ import annotations

import os.path
from typing import Any

import attrs

from ...ir.compile_options import LOOP_SUFFIXES
from ...ir.diagnostics import suggest
from ...ir.effects import EFFECTS
from ...ir.records import define
from ..host import files
from ..host.errors import UserError
from ..host.paths import LOOPS, open_regular, slug
from ..project import options
from ..project.options import OVERRIDES, Values, recorded_options
from .recording import Recording

FORMAT = 1
LIMITS = ("fuel", "depth", "size")
FOLDER = os.path.join(LOOPS, "tests")
# Parts of a record that can be normalised, in this order.
NORMALIZED = ("times", "texts")
OPTIONS = {**OVERRIDES, "default_model": options.TEXT}
# By effect kind, the default values of result fields that a case may omit; null means that the field is
# absent.
DEFAULT_RESULTS = {row.name: row.usual for row in EFFECTS.values() if row.optional}


@define
class Case:
    """A recorded case.

    Args:
        path: its file.
        source: the loop under test; '' for an expression.
        expression: the expression under test; None for a loop.
        options: as in `run_start`, and `default_model`.
        normalized: the normalised parts, from `NORMALIZED`.
        ticks: ticks used when it was recorded; 0 if few.
        recording: the recorded events.
        limits: as in `run_start`.
    """

    path: str
    source: str
    expression: str | None
    options: dict[str, Any]
    normalized: tuple[str, ...]
    ticks: int
    recording: Recording
    limits: dict[str, int] = attrs.Factory(dict)

    @property
    def name(self) -> str:
        return os.path.splitext(os.path.basename(self.path))[0]

    def values(self) -> Values:
        """The options with which its source is compiled."""
        return Values(self.source, expression=self.expression, **recorded_options(self.options))


def outputs_folder(path: str) -> str:
    """The folder for the long texts of the case at `path`."""
    return os.path.splitext(path)[0] + ".outputs"


# --- search for cases -------------------------------------------------------------------------


def find_cases(paths: list[str]) -> list[str]:
    """The case files for names and paths of cases and folders; without any, those in `.loops/tests/`.

    Raises UserError for a case that does not exist.
    """
    found: dict[str, str] = {}
    for path in paths or [FOLDER]:
        if files.isdir(path):
            for folder, folders, names in files.walk(path):
                folders[:] = sorted(
                    name for name in folders if not name.startswith(".") and not name.endswith(".outputs")
                )
                for file in sorted(names):
                    if file.endswith(LOOP_SUFFIXES) and not file.startswith("."):
                        full = os.path.join(folder, file)
                        found.setdefault(files.realpath(full), full)
            continue
        named = path if files.lexists(path) else case_path(path)
        if files.lexists(named):
            found.setdefault(files.realpath(named), named)
        elif paths:
            known = [os.path.splitext(os.path.basename(case))[0] for case in find_cases([])]
            raise UserError("unknown-case", f"there is no case `{path}`", suggest(path, known, "cases here"))
    return list(found.values())


def case_path(name: str) -> str:
    """The path of the case `name` in `.loops/tests/`; a path is returned unchanged."""
    if os.path.sep in name or name.endswith(LOOP_SUFFIXES):
        return name
    return os.path.join(FOLDER, f"{name}.yaml")


def free_path(program: str) -> str:
    """An unused path for a new case of a program."""
    stem = slug(program)
    number = 1
    while files.lexists(path := case_path(stem if number == 1 else f"{stem}-{number}")):
        number += 1
    return path


def is_case(path: str) -> bool:
    """Whether a file has the header of a recorded case."""
    try:
        with open_regular(path) as file:
            head = file.read(4096)
    except OSError:
        return False
    return any(line.startswith(b"llc_case:") for line in head.splitlines())
