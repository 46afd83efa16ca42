"""Secret files: files with keys or passwords, recognised by name; never read for a model or the index."""

from __future__ import annotations

import re

# Examples of such files (`.env.example`) are not secret.
_SECRET = re.compile(
    rb"""(?:^|/)(?!.*\.(?:example|sample|template|dist)\Z)
    (?: \.env (?:\.[^/]*)? | [^/]*\.env | \.envrc | id_[a-z0-9_-]+
    | [^/]*\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk)
    | [._]netrc | \.(?:pgpass|npmrc|pypirc|htpasswd|git-credentials|dockercfg)
    | \.aws/credentials | \.docker/config\.json | \.kube/config )\Z""",
    re.VERBOSE | re.DOTALL,
)


def is_secret(path: bytes) -> bool:
    """Whether the name of a file shows that it contains keys or passwords."""
    return _SECRET.search(path.lower()) is not None
