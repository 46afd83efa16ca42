"""The configuration of a project, `.loops/config.yaml`; `spec/cli.md`, Configuration.

    secrets: [DEPLOY_PASSWORD]          environment variables whose values are never shown or written
    history: {keep: 100, older_than: 30d}
    models: [{name: local, provider: openai, base_url: "http://127.0.0.1:8000/v1", key: LOCAL_KEY}]
    tasks: {model: local, runner: model, max_tokens: 8192, timeout: 600}
    mcp: {files: {command: files-server, args: [.], env: {TOKEN: $FILES_TOKEN}}}
    agents: {codex: {argv: [codex, exec, "{prompt}"], output: text}}
    record_files: agents
    budget: {usd: 5, tokens: 1000000, calls: 50, seconds: 3600}
    database: postgresql://llc@db.example/llc

A project without the file has the defaults, and nothing is imported for it: the classes are in `settings`,
the keys are declared in `configuration_schema`.
"""

from __future__ import annotations

import os.path

from ..host import files
from ..host.paths import CONFIG, LOOPS
from .settings import Configuration


def load(root: str) -> Configuration:
    """The configuration of a project. Raises CompileError with everything that is wrong with it."""
    path = _path(root)
    if path is None:
        return Configuration()
    # Start-up: the schema engine needs attrs and PyYAML.
    from .configuration_schema import read_configuration

    return read_configuration(path)


def _path(root: str) -> str | None:
    """The file; None if there is none."""
    path = os.path.join(root, LOOPS, CONFIG)
    return path if files.lexists(path) else None


class Unusable(Exception):
    """The configuration has errors; the text states the first one."""


def load_usable(root: str) -> Configuration:
    """The configuration of a project, for an effect. Raises `Unusable`."""
    if _path(root) is None:
        return Configuration()
    # Start-up: a run of a compiled image needs no diagnostics.
    from ...ir.diagnostics import CompileError

    try:
        return load(root)
    except CompileError as error:
        told = error.diagnostics[0].message if error.diagnostics else "it has errors"
        raise Unusable(f".loops/config.yaml cannot be used: {told}") from None
