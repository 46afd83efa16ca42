"""Loader of the project configuration, `.loops/config.yaml`; see `spec/cli.md`, Configuration.

    secrets: [DEPLOY_PASSWORD]          environment variables whose values are never shown or written
    history: {keep: 100, older_than: 30d}
    models: [{name: local, provider: openai, base_url: "http://127.0.0.1:8000/v1", key: LOCAL_KEY}]
    tasks: {model: local, runner: model, max_tokens: 8192, timeout: 600}
    mcp: {files: {command: files-server, args: [.], env: {TOKEN: $FILES_TOKEN}}}
    agents: {codex: {argv: [codex, exec, "{prompt}"], output: text}}
    record_files: agents
    budget: {usd: 5, tokens: 1000000, calls: 50, seconds: 3600}
    database: postgresql://llc@db.example/llc

A project without this file has the defaults and imports no reader: `settings` has the classes,
`configuration_schema` declares the keys.
"""

from __future__ import annotations

import os.path

from ..host import files
from ..host.paths import CONFIG, LOOPS
from .settings import Configuration


def load(root: str) -> Configuration:
    """Load the configuration of the project in `root`. Raises CompileError with all its diagnostics."""
    path = _path(root)
    if path is None:
        return Configuration()
    # Start-up time: the schema engine imports attrs and PyYAML.
    from .configuration_schema import read_configuration

    return read_configuration(path)


def _path(root: str) -> str | None:
    """Path of the configuration file; None if the file does not exist."""
    path = os.path.join(root, LOOPS, CONFIG)
    return path if files.lexists(path) else None


class Unusable(Exception):
    """The configuration is invalid; the message states the first error."""


def load_usable(root: str) -> Configuration:
    """Load the configuration for an effect, which reports one message. Raises `Unusable`."""
    if _path(root) is None:
        return Configuration()
    # Start-up time: a run of a compiled image needs no diagnostics.
    from ...ir.diagnostics import CompileError

    try:
        return load(root)
    except CompileError as error:
        problem = error.diagnostics[0].message if error.diagnostics else "it has errors"
        raise Unusable(f".loops/config.yaml cannot be used: {problem}") from None
