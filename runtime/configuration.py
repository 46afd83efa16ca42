"""What a project says in `.loops/config.yaml`; `spec/cli.md`, Configuration.

    secrets: [DEPLOY_PASSWORD]          environment variables whose values are never shown or written
    history: {keep: 100, older_than: 30d}

A project without the file has the defaults, and nothing is imported to find that out.
"""

from __future__ import annotations

import os
import re

from .runs import CONFIG, LOOPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..frontend.documents import Document, Mapping, Node

# Of each loop so many ended runs are kept where nothing else is said.
KEPT = 100

_AGE = re.compile(r"(\d{1,6})\s*(m|h|d|w)")
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Configuration:
    """secrets: names of variables. keep: how many ended runs of a loop stay. older_than: in seconds; only
    runs that began longer ago are removed, None for any.
    """

    __slots__ = ("keep", "older_than", "secrets")

    def __init__(
        self, secrets: tuple[str, ...] = (), keep: int = KEPT, older_than: int | None = None
    ) -> None:
        self.secrets = secrets
        self.keep = keep
        self.older_than = older_than


def load(root: str) -> Configuration:
    """The configuration of a project. Raises CompileError with everything that is wrong with it."""
    path = os.path.join(root, LOOPS, CONFIG)
    if not os.path.lexists(path):
        return Configuration()
    from ..frontend.documents import read_document, read_source

    return _Reader(read_document(read_source(path))).configuration()


def age(text: str) -> int | None:
    """Seconds in an age such as `30d`, `12h`, `90m` or `4w`; None for what is none."""
    match = _AGE.fullmatch(text.strip())
    return None if match is None else int(match[1]) * _UNITS[match[2]]


class _Reader:
    def __init__(self, document: Document) -> None:
        self.document = document

    def configuration(self) -> Configuration:
        from ..frontend.documents import Mapping, Scalar
        from ..ir.diagnostics import CompileError

        found = Configuration()
        root = self.document.root
        is_empty = isinstance(root, Scalar) and root.value is None
        if is_empty or [finding.id for finding in self.document.diagnostics] == ["empty-document"]:
            return found
        if isinstance(root, Mapping):
            for key, node in self.entries(root, ("secrets", "history"), "the configuration"):
                if key == "secrets":
                    found.secrets = self.secrets(node)
                else:
                    self.history(node, found)
        elif root is not None:
            self.error("wrong-type", "the configuration is a mapping", root)
        if any(finding.is_error for finding in self.document.diagnostics):
            raise CompileError(self.document.diagnostics, [self.document.source])
        return found

    def error(self, id: str, message: str, node: Node, help: str | None = None) -> None:
        self.document.fail(id, message, self.document.span(node), help=help)

    def entries(self, mapping: Mapping, known: tuple[str, ...], what: str) -> list[tuple[str, Any]]:
        from ..ir.diagnostics import suggest

        for key, (name, _) in mapping.entries.items():
            if key not in known:
                help = suggest(key, known, "it may have")
                self.error("unknown-key", f"{what} has no key `{key}`", name, help)
        return [(key, node) for key, (_, node) in mapping.entries.items() if key in known]

    def secrets(self, node: Node) -> tuple[str, ...]:
        from ..frontend.documents import Sequence

        if not isinstance(node, Sequence):
            self.error("wrong-type", "`secrets` is a list of names of environment variables", node)
            return ()
        names = []
        for item in node.items:
            name = self.document.plain(item)
            if isinstance(name, str) and _VARIABLE.fullmatch(name):
                names.append(name)
            else:
                help = "the variable's name stands here, never its value"
                self.error("wrong-type", "not the name of an environment variable", item, help)
        return tuple(names)

    def history(self, node: Node, found: Configuration) -> None:
        from ..frontend.documents import Mapping

        if not isinstance(node, Mapping):
            self.error("wrong-type", "`history` is a mapping of `keep` and `older_than`", node)
            return
        for key, item in self.entries(node, ("keep", "older_than"), "`history`"):
            value = self.document.plain(item)
            if key == "keep":
                if type(value) is int and value >= 0:
                    found.keep = value
                else:
                    self.error("wrong-type", "`keep` is a number of runs from 0", item)
            else:
                found.older_than = age(value) if isinstance(value, str) else None
                if found.older_than is None:
                    self.error("wrong-type", "`older_than` is an age such as `30d`, `12h` or `4w`", item)
