"""Secrets: values that are never written or shown, and their substitutes.

Owns which values are secret (environment variables by name) and how they are found in texts. Programs
and actions get the real values, so masking does not change what a run does. In files that llc reads again
(journal, checkpoint) a secret is replaced by a reference to its variable, and reading takes the value from
the environment of that time; for people (display, log, state file, errors) it is replaced by `***`. See
`spec/events.md`, Secrets.
"""

from __future__ import annotations

from . import environment
from .errors import EXIT_FAILURE, UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

MASK = "***"
# Names of variables that are secret if their values are long enough.
SUFFIXES = ("_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
NAMES = ("API_KEY", "TOKEN", "SECRET", "PASSWORD", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD")
SHORTEST = 8
# Minimum length for a variable that the project names; a shorter value would match everywhere.
SHORTEST_NAMED = 4
# Characters that are not escaped in a URL.
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~")
# The value of a secret that is not set when a run is replayed without performing anything.
_PLACEHOLDER = "secret-{}-is-not-set"


class Secrets:
    """The secrets of a process. label: the variable's name, with `/form` for another notation."""

    __slots__ = ("_labels", "_lenient", "_values", "in_bytes", "texts")

    def __init__(self, values: Mapping[str, str], is_lenient: bool = False) -> None:
        self._lenient = is_lenient
        self._values: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        self.texts: tuple[str, ...] = ()
        self.in_bytes: tuple[bytes, ...] = ()
        self._add(values)

    def _add(self, values: Mapping[str, str]) -> None:
        for name, value in values.items():
            for label, text in _forms(name, value):
                self._values.setdefault(label, text)
                self._labels.setdefault(text, label)
        # Longest first: one may be part of another.
        self.texts = tuple(sorted(self._labels, key=len, reverse=True))
        self.in_bytes = tuple(text.encode("utf-8", "surrogatepass") for text in self.texts)

    def __bool__(self) -> bool:
        return bool(self.texts)

    def occur_in(self, text: str) -> bool:
        for secret in self.texts:  # noqa: SIM110 - `any` takes three times as long
            if secret in text:
                return True
        return False

    def mask(self, text: str) -> str:
        """The text with secrets masked."""
        for secret in self.texts:
            if secret in text:
                text = text.replace(secret, MASK)
        return text

    def mask_all(self, value: Any) -> Any:
        """Plain data with secrets masked, in texts and keys."""
        if isinstance(value, str):
            return self.mask(value) if self.occur_in(value) else value
        if isinstance(value, dict):
            return {self.mask_all(name): self.mask_all(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.mask_all(item) for item in value]
        return value

    # --- references instead of secrets --------------------------------------------------------

    def split(self, text: str) -> list[str]:
        """The parts of a text: at even indices the text between secrets, at odd ones their labels."""
        parts = [text]
        for secret in self.texts:
            for index in range(len(parts) - 1, -1, -2):
                pieces = parts[index].split(secret)
                if len(pieces) > 1:
                    label = self._labels[secret]
                    parts[index : index + 1] = [part for piece in pieces for part in (piece, label)][:-1]
        return parts

    def join(self, parts: Iterable[str]) -> str:
        """The text from the parts of `split`. Raises UserError for a secret that is not set here."""
        return "".join(self._value(str(part)) if index % 2 else str(part) for index, part in enumerate(parts))

    def _value(self, label: str) -> str:
        found = self._values.get(label)
        if found is not None:
            return found
        name = label.partition("/")[0]
        if not self._lenient:
            raise UserError(
                "missing-secret",
                f"the run used the secret `{name}`, which is not set here",
                f"set the environment variable {name} as it was",
                EXIT_FAILURE,
            )
        self._add({name: _PLACEHOLDER.format(name)})
        return self._values.setdefault(label, _PLACEHOLDER.format(name))


class Stream:
    """Masking of text or bytes that arrive in parts; a secret may span two parts."""

    __slots__ = ("_empty", "_held", "_mask", "_secrets")

    def __init__(self, is_text: bool) -> None:
        self._secrets: Any = known.texts if is_text else known.in_bytes
        self._mask: Any = MASK if is_text else MASK.encode()
        self._empty: Any = "" if is_text else b""
        self._held = self._empty

    def feed(self, part: Any) -> Any:
        """The masked part that can be shown now; a possible start of a secret is held back."""
        data = self._held + part
        for secret in self._secrets:
            if secret in data:
                data = data.replace(secret, self._mask)
        keep = max((_overlap(data, secret) for secret in self._secrets), default=0)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def finish(self) -> Any:
        """The rest that was held back: no secret, because nothing followed."""
        held, self._held = self._held, self._empty
        return held


def _overlap(data: Any, secret: Any) -> int:
    """The length of the longest end of `data` that is a proper prefix of `secret`."""
    start = max(0, len(data) - len(secret) + 1)
    while (start := data.find(secret[:1], start)) >= 0:
        if secret.startswith(data[start:]):
            return int(len(data) - start)
        start += 1
    return 0


def _forms(name: str, value: str) -> list[tuple[str, str]]:
    """The notations of a secret in texts, each with its label; the value itself first."""
    import json

    forms = {name: value}
    stripped = value.strip()
    if len(stripped) >= SHORTEST_NAMED:
        forms[f"{name}/stripped"] = stripped
    forms[f"{name}/json"] = json.dumps(value)[1:-1]
    forms[f"{name}/utf8-json"] = json.dumps(value, ensure_ascii=False)[1:-1]
    forms[f"{name}/single"] = value.replace("'", "'\\''")
    forms[f"{name}/double"] = "".join("\\" + ch if ch in '"$`\\' else ch for ch in value)
    raw = value.encode("utf-8", "replace")
    forms[f"{name}/url"] = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        forms |= {f"{name}/line-{n}": line for n, line in enumerate(lines, 1) if len(line) >= SHORTEST}
    seen: dict[str, str] = {}
    for label, text in forms.items():
        seen.setdefault(text, label)
    return [(label, text) for text, label in seen.items()]


def from_environment(named: Iterable[str] = (), is_lenient: bool = False) -> Secrets:
    """The secrets in this process's environment; `named`: variables that the project adds."""
    values = {}
    extra = frozenset(named)
    for raw, content in environment.environb.items():
        name = raw.decode("utf-8", "replace")
        is_named = name in extra
        if not is_named and not (name.endswith(SUFFIXES) or name in NAMES):
            continue
        value = content.decode("utf-8", "replace")
        if len(value.strip()) >= (SHORTEST_NAMED if is_named else SHORTEST):
            values[name] = value
    return Secrets(values, is_lenient)


# The secrets of this process: there is one environment for everything in it.
known = Secrets({})


def begin(named: Iterable[str] = (), is_lenient: bool = False) -> None:
    """Mask the secrets of the environment from now on; see `from_environment`."""
    global known
    known = from_environment(named, is_lenient)


def hidden(parts: Iterable[str]) -> str:
    """The masked text from the parts of `Secrets.split`."""
    return "".join(MASK if index % 2 else str(part) for index, part in enumerate(parts))


def masked(text: str) -> str:
    """A text with the secrets of this process masked."""
    return known.mask(text)
