"""Files that hold keys or passwords, recognised by their names: never read for a model or the index."""

from __future__ import annotations

import re

# An example of such a file is no secret.
_SECRET = re.compile(
    rb"""(?:^|/)(?!.*\.(?:example|sample|template|dist)\Z)
    (?: \.env (?:\.[^/]*)? | [^/]*\.env | \.envrc | id_[a-z0-9_-]+
    | [^/]*\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk)
    | [._]netrc | \.(?:pgpass|npmrc|pypirc|htpasswd|git-credentials|dockercfg)
    | \.aws/credentials | \.docker/config\.json | \.kube/config )\Z""",
    re.VERBOSE | re.DOTALL,
)


def is_secret(path: bytes) -> bool:
    """Whether a file holds keys or passwords, by its name."""
    return _SECRET.search(path.lower()) is not None
