"""Secrets: values that are never written or displayed, and their masking.

Owns the selection of secret values (environment variables by name) and the search for them in texts. Programs
and actions receive the real values, so masking does not change the behaviour of a run. In files that llc
reads again (journal, checkpoint) a secret is replaced by a reference to its variable; a reader inserts the
value from its own environment. In output for people (display, log, state file, errors) a secret is replaced
by `***`. See `spec/events.md`, Secrets.
"""

from __future__ import annotations

from . import environment
from .errors import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

MASK = "***"
# Variables that are secret if their values have at least SHORTEST characters.
SUFFIXES = ("_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_SECRET_KEY", "_PRIVATE_KEY")
NAMES = (*(suffix[1:] for suffix in SUFFIXES), "AWS_SECRET_ACCESS_KEY", "PGPASSWORD")
# Variable with the address of a cluster's database; only the password in it is secret.
DATABASE = "LLC_DB"
SHORTEST = 8
# Minimum length for a variable that the project configures as secret; shorter values would match everywhere.
SHORTEST_NAMED = 4
# Substitute for a secret that is not set when a run is replayed without performing effects.
_PLACEHOLDER = "secret-{}-is-not-set"


class Secrets:
    """Secrets of a process. The label of a secret is its variable's name, with `/form` for another notation.

    is_lenient: use a placeholder for a secret that is not set, instead of raising an error.
    """

    def __init__(self, values: Mapping[str, str], is_lenient: bool = False) -> None:
        self._lenient = is_lenient
        self._values: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        self._by_core: dict[str, set[str]] = {}
        self.texts: tuple[str, ...] = ()
        self.in_bytes: tuple[bytes, ...] = ()
        # Forms grouped by a text that all forms of a group contain, so that most texts are searched only for
        # that text.
        self.text_groups: list[tuple[str, tuple[str, ...]]] = []
        self.byte_groups: list[tuple[bytes, tuple[bytes, ...]]] = []
        if values:
            self._add(values)

    def _add(self, values: Mapping[str, str]) -> None:
        from .secret_forms import forms  # imported only if there is a secret

        for name, value in values.items():
            for group in forms(name, value):
                self._by_core.setdefault(group.core, set()).update(group.labels)
                for text, label in group.labels.items():
                    self._values.setdefault(label, text)
                    self._labels.setdefault(text, label)
        # Longest first, because one secret may be part of another.
        self.texts = tuple(sorted(self._labels, key=len, reverse=True))
        self.in_bytes = tuple(map(_encoded, self.texts))
        self.text_groups = [(core, tuple(texts)) for core, texts in self._by_core.items()]
        self.byte_groups = [
            (_encoded(core), tuple(map(_encoded, texts))) for core, texts in self._by_core.items()
        ]

    def __bool__(self) -> bool:
        return bool(self.texts)

    def occur_in(self, text: str) -> bool:
        for core, texts in self.text_groups:
            if core in text:
                for secret in texts:
                    if secret in text:
                        return True
        return False

    def mask(self, text: str) -> str:
        """Mask the secrets in a text."""
        for secret in _present(text, self.text_groups):
            text = text.replace(secret, MASK)
        return text

    def mask_all(self, value: Any) -> Any:
        """Mask the secrets in the texts and keys of plain data."""
        if isinstance(value, str):
            return self.mask(value) if self.occur_in(value) else value
        if isinstance(value, dict):
            return {self.mask_all(name): self.mask_all(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.mask_all(item) for item in value]
        return value

    # --- references instead of secrets --------------------------------------------------------

    def split(self, text: str) -> list[str]:
        """Split a text: even indices contain the text between secrets, odd indices the labels of secrets."""
        parts = [text]
        for secret in _present(text, self.text_groups):
            for index in range(len(parts) - 1, -1, -2):
                pieces = parts[index].split(secret)
                if len(pieces) > 1:
                    label = self._labels[secret]
                    parts[index : index + 1] = [part for piece in pieces for part in (piece, label)][:-1]
        return parts

    def join(self, parts: Iterable[str]) -> str:
        """Inverse of `split`. Raises UserError for a secret that is not set here."""
        return "".join(self._value(str(part)) if index % 2 else str(part) for index, part in enumerate(parts))

    def _value(self, label: str) -> str:
        value = self._values.get(label)
        if value is not None:
            return value
        name = label.partition("/")[0]
        if not self._lenient:
            raise Failure(
                "missing-secret",
                f"the run used the secret `{name}`, which is not set here",
                f"set the environment variable {name} to its former value",
            )
        self._add({name: _PLACEHOLDER.format(name)})
        return self._values.setdefault(label, _PLACEHOLDER.format(name))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _present(data: Any, groups: Any) -> list[Any]:
    """Return the forms of secrets that occur in a text, longest first."""
    found = [text for core, texts in groups if core in data for text in texts if text in data]
    if len(found) > 1:
        found.sort(key=len, reverse=True)
    return found


class Stream:
    """Incremental masking of text or bytes; a secret may span several parts."""

    def __init__(self, is_text: bool) -> None:
        self._secrets: Any = known.texts if is_text else known.in_bytes
        self._groups: Any = known.text_groups if is_text else known.byte_groups
        self._mask: Any = MASK if is_text else MASK.encode()
        self._empty: Any = "" if is_text else b""
        self._held = self._empty

    def feed(self, part: Any) -> Any:
        """Add a part; return the masked data so far. A possible beginning of a secret is held back."""
        data = self._held + part
        for secret in _present(data, self._groups):
            data = data.replace(secret, self._mask)
        keep = max((_overlap(data, secret) for secret in self._secrets), default=0)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def finish(self) -> Any:
        """Return the data held back, which is not a secret because nothing follows."""
        held, self._held = self._held, self._empty
        return held


def _overlap(data: Any, secret: Any) -> int:
    """Return the length of the longest suffix of `data` that is a proper prefix of `secret`."""
    start = max(0, len(data) - len(secret) + 1)
    while (start := data.find(secret[:1], start)) >= 0:
        if secret.startswith(data[start:]):
            return int(len(data) - start)
        start += 1
    return 0


def password_in(url: str) -> str:
    """Return the password in a URL, without decoding; "" if there is none.

    The password extends to the last `@`, even if special characters in it are not encoded.
    """
    place = url.partition("://")[2]
    user, at, _ = place.rpartition("@")
    password = user.partition(":")[2] if at else ""
    for part in place.partition("?")[2].split("&"):
        name, _, value = part.partition("=")
        if name == "password" and not password:
            password = value
    return password


def from_environment(named: Iterable[str] = (), is_lenient: bool = False) -> Secrets:
    """Collect the secrets in this process's environment.

    named: additional variables from the configuration.
    """
    values = {}
    extra = frozenset(named)
    for raw, content in environment.environb.items():
        name = raw.decode("utf-8", "replace")
        is_named = name in extra
        if not is_named and not (name.endswith(SUFFIXES) or name in NAMES or name == DATABASE):
            continue
        value = content.decode("utf-8", "replace")
        if name == DATABASE and not is_named:
            value = password_in(value)
        if len(value.strip()) >= (SHORTEST_NAMED if is_named else SHORTEST):
            values[name] = value
    return Secrets(values, is_lenient)


# Secrets of this process.
known = Secrets({})


def begin(named: Iterable[str] = (), is_lenient: bool = False) -> None:
    """Set the secrets of this process to those of its environment; see `from_environment`."""
    global known
    known = from_environment(named, is_lenient)


def hidden(parts: Iterable[str]) -> str:
    """Join the parts of `Secrets.split` with all secrets masked."""
    return "".join(MASK if index % 2 else str(part) for index, part in enumerate(parts))


def masked(text: str) -> str:
    """Mask the secrets of this process in a text."""
    return known.mask(text)
