"""Recorded cases: a run as a file that people read and `llc test` tells again; `spec/testing.md`.

Owns what a case is, the words of its format, and which files are meant. `case_reader` and `case_writer`
go between a `Case` and its file.
"""

from __future__ import annotations

import os.path
from typing import Any

import attrs

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
SUFFIXES = (".yaml", ".yml")
# What of a record is made the same wherever it was made, in this order.
NORMALIZED = ("times", "texts")
OPTIONS = {**OVERRIDES, "default_model": options.TEXT}
# Fields of a result that a case may leave out, with their values; null says that a field is absent.
USUAL = {row.name: row.usual for row in EFFECTS.values() if row.optional}


@define
class Case:
    """A recorded case. path: its file. source: the loop it tests, or '' where it is an `expression`.

    options: as in `run_start`, and `default_model`. ticks: what it used when it was recorded. limits:
    as in `run_start`.
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
        """The options to compile its source with."""
        return Values(self.source, expression=self.expression, **recorded_options(self.options))


def outputs_of(path: str) -> str:
    """The folder for the long texts of the case at `path`."""
    return os.path.splitext(path)[0] + ".outputs"


# --- which cases are meant --------------------------------------------------------------------


def find_cases(paths: list[str]) -> list[str]:
    """The files that are meant by paths of cases and folders of them; without any, `.loops/tests/`.

    Raises UserError for one that is not there.
    """
    found: dict[str, str] = {}
    for path in paths or [FOLDER]:
        if files.isdir(path):
            for folder, folders, names in files.walk(path):
                folders[:] = sorted(
                    name for name in folders if not name.startswith(".") and not name.endswith(".outputs")
                )
                for file in sorted(names):
                    if file.endswith(SUFFIXES) and not file.startswith("."):
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
    """The file of the case `name` in `.loops/tests/`; a path is a path."""
    if os.path.sep in name or name.endswith(SUFFIXES):
        return name
    return os.path.join(FOLDER, f"{name}.yaml")


def free_path(program: str) -> str:
    """Where a new case for a program may stand: nothing is there yet."""
    stem = slug(program)
    number = 1
    while files.lexists(path := case_path(stem if number == 1 else f"{stem}-{number}")):
        number += 1
    return path


def is_case(path: str) -> bool:
    """Whether a file looks like a recorded case."""
    try:
        with open_regular(path) as file:
            head = file.read(4096)
    except OSError:
        return False
    return any(line.startswith(b"llc_case:") for line in head.splitlines())
