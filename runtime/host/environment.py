"""Environment of this process: variables, working directory, user, random bytes."""

from __future__ import annotations

from os import chdir, defpath, environ, environb, getcwd, getcwdb, geteuid, sysconf, urandom

from . import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from platform import node, platform, python_version
    from shutil import which
    from typing import Any
else:

    def __getattr__(name: str) -> Any:
        return load(globals(), _DEFERRED, name)


_DEFERRED = {"shutil": ("which",), "platform": ("node", "platform", "python_version")}
