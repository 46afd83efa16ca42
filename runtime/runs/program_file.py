"""The program of a run in its folder: an image as it is, or without the secrets that were put into it.

`--arg` and `--context` become constants of the program, so a secret that is given by them would stand
in its image. Where one does, what is kept is the image in parts, with the names of variables between
them, and a digest of the whole, by which another value of a variable is found out.
"""

from __future__ import annotations

import json

from ...ir.digests import sha256
from ..host import secrets
from ..host.errors import EXIT_FAILURE, UserError
from ..journal.journal import write_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...vm.code.image import Image

_BEGINNING = b"llc image without secrets 1 "


def keep(path: str, image: Image) -> None:
    """Write a run's program. Raises JournalError."""
    write_file(path, of(image), mode=0o600)


def of(image: Image) -> bytes:
    """What is kept of an image."""
    return without_secrets(image.to_bytes(packed=False)) if holds_secret(image) else image.to_bytes()


def holds_secret(image: Image) -> bool:
    """Whether a secret stands in an image, which can be seen only where it is not packed."""
    return bool(secrets.known) and _has_secret(image.to_bytes(packed=False))


def _has_secret(data: bytes) -> bool:
    return any(secret in data for secret in secrets.known.in_bytes)


def whole(data: bytes, path: str) -> bytes:
    """The image that a file's data stands for. Raises UserError where a secret is not as it was."""
    if not data.startswith(_BEGINNING):
        return data
    digest, _, text = data[len(_BEGINNING) :].partition(b" ")
    try:
        parts = json.loads(text)
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise ValueError
    except (ValueError, RecursionError):
        return data  # damaged, which the reader of images will say
    try:
        found = secrets.known.join(parts).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return data
    if sha256(found).hexdigest().encode() != digest:
        names = " or ".join(sorted({f"`{label.partition('/')[0]}`" for label in parts[1::2]}))
        raise UserError(
            "changed-secret",
            f"{path} cannot be read: it was made with the secret {names}, which is another now,"
            " or it is damaged",
            "set the environment variable as it was",
            EXIT_FAILURE,
        )
    return found


def without_secrets(data: bytes) -> bytes:
    """An image's data in parts, if there is a secret in it."""
    if not _has_secret(data):
        return data
    parts = secrets.known.split(data.decode("utf-8", "surrogateescape"))
    return _BEGINNING + sha256(data).hexdigest().encode() + b" " + json.dumps(parts).encode()
