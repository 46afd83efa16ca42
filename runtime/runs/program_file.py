"""Program file of a run: its image, with secrets replaced by references.

`--arg` and `--context` become constants of the program, so its image may contain a secret. Then the file
holds the parts of the image between the secrets, the names of their variables, and a digest of the whole
image, which detects a changed value.
"""

from __future__ import annotations

from ...ir import light_json
from ...ir.python_internals import sha256
from ..host import secrets
from ..host.errors import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...vm.code.image import Image

_BEGINNING = b"llc image without secrets 1 "


def of(image: Image) -> bytes:
    """The data of an image's program file."""
    return without_secrets(image.to_bytes(packed=False)) if holds_secret(image) else image.to_bytes()


def holds_secret(image: Image) -> bool:
    """Whether an image contains a secret, which only its unpacked form shows."""
    return bool(secrets.known) and _has_secret(image.to_bytes(packed=False))


def _has_secret(data: bytes) -> bool:
    return any(secret in data for secret in secrets.known.in_bytes)


def whole(data: bytes, path: str) -> bytes:
    """The image in a program file's data. Raises UserError if a secret has changed."""
    if not data.startswith(_BEGINNING):
        return data
    digest, _, text = data[len(_BEGINNING) :].partition(b" ")
    try:
        parts = light_json.loads(text)
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise ValueError
    except (ValueError, RecursionError):
        return data  # damaged; the reader of images reports it
    try:
        found = secrets.known.join(parts).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return data
    if sha256(found).hexdigest().encode() != digest:
        names = " or ".join(sorted({f"`{label.partition('/')[0]}`" for label in parts[1::2]}))
        raise Failure(
            "changed-secret",
            f"{path} cannot be read: it was made with the secret {names}, which is another now,"
            " or it is damaged",
            "set the environment variable as it was",
        )
    return found


def without_secrets(data: bytes) -> bytes:
    """An image's data, in parts if it contains a secret."""
    if not _has_secret(data):
        return data
    parts = secrets.known.split(data.decode("utf-8", "surrogateescape"))
    return _BEGINNING + sha256(data).hexdigest().encode() + b" " + light_json.dumps_ascii(parts).encode()
