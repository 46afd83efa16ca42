"""Program file of a run: the image of its program, with secrets replaced by references.

The values of `--arg` and `--context` are constants of the program, so the image may contain a secret. Then
the file contains the parts of the image between the secrets, the names of the secrets' variables, and a
digest of the complete image, which detects a changed value.
"""

from __future__ import annotations

from ...ir import light_json
from ...ir.python_internals import sha256
from ..host import secrets
from ..host.errors import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...vm.code.image import Image

_MAGIC = b"llc image without secrets 1 "


def encode(image: Image) -> bytes:
    """Return the contents of the program file for an image."""
    return without_secrets(image.to_bytes(packed=False)) if holds_secret(image) else image.to_bytes()


def holds_secret(image: Image) -> bool:
    """Whether an image contains a secret; checks the unpacked form, where secrets are visible."""
    return bool(secrets.known) and _has_secret(image.to_bytes(packed=False))


def _has_secret(data: bytes) -> bool:
    return any(secret in data for secret in secrets.known.in_bytes)


def decode(data: bytes, path: str) -> bytes:
    """Return the image bytes from the contents of a program file.

    Raises UserError if a secret has changed.
    """
    if not data.startswith(_MAGIC):
        return data
    digest, _, text = data[len(_MAGIC) :].partition(b" ")
    try:
        parts = light_json.loads(text)
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise ValueError
    except (ValueError, RecursionError):
        return data  # damaged; the reader of images reports it
    try:
        image = secrets.known.join(parts).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return data
    if sha256(image).hexdigest().encode() != digest:
        names = " or ".join(sorted({f"`{label.partition('/')[0]}`" for label in parts[1::2]}))
        raise Failure(
            "changed-secret",
            f"{path} cannot be read: the secret {names}, which it was written with, has changed,"
            " or the file is damaged",
            "set the environment variable to its former value",
        )
    return image


def without_secrets(data: bytes) -> bytes:
    """Return image data with secrets replaced by references; unchanged if it contains no secret."""
    if not _has_secret(data):
        return data
    parts = secrets.known.split(data.decode("utf-8", "surrogateescape"))
    return _MAGIC + sha256(data).hexdigest().encode() + b" " + light_json.dumps_ascii(parts).encode()
