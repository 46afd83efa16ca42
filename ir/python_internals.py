"""What llc takes from the Python interpreter itself, for speed: digests, and a pause of its collector.

The digests are those of `hashlib` without OpenSSL, which takes longer to load than a small run. The
interpreter's own modules are private, so where one is missing `hashlib` is taken.
"""

from __future__ import annotations

import gc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import blake2b, sha256
else:
    try:
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b
    try:
        from _sha2 import sha256  # since 3.12
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256

__all__ = ["CollectorRests", "blake2b", "sha256"]


class CollectorRests:
    """Context manager: disable the garbage collector inside, and restore its previous state.

    For work that makes many objects which are kept, where collecting would take half of the time.
    """

    def __enter__(self) -> None:
        self._was_collecting = gc.isenabled()
        gc.disable()

    def __exit__(self, *error: object) -> None:
        if self._was_collecting:
            gc.enable()
