"""SHA-256 and BLAKE2b as `hashlib` has them, without loading OpenSSL, which takes longer than a small run.

The interpreter's own modules are private, so where one is missing `hashlib` is taken.
"""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b
try:
    from _sha2 import sha256  # type: ignore[import-not-found]  # since 3.12
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found]
    except ImportError:
        from hashlib import sha256

__all__ = ["blake2b", "sha256"]
