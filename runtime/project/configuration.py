"""The configuration of a project, `.loops/config.yaml`; `spec/cli.md`, Configuration.

    secrets: [DEPLOY_PASSWORD]          environment variables whose values are never shown or written
    history: {keep: 100, older_than: 30d}
    models: [{name: local, provider: openai, base_url: "http://127.0.0.1:8000/v1", key: LOCAL_KEY}]
    tasks: {model: local, runner: model, max_tokens: 8192, timeout: 600}
    mcp: {files: {command: files-server, args: [.], env: {TOKEN: $FILES_TOKEN}}}
    agents: {codex: {argv: [codex, exec, "{prompt}"], output: text}}
    budget: {usd: 5, tokens: 1000000, calls: 50, seconds: 3600}

A project without the file has the defaults, and this module imports nothing for it; the keys are
declared in `configuration_schema`.
"""

from __future__ import annotations

import os.path
import re

from ..host import files
from ..host.paths import CONFIG, KEPT, LOOPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...frontend.tasks.mcp import McpServer
    from .agents import Agent
    from .configuration_schema import ModelEntry, TaskSettings

AGE = r"(\d{1,6})\s*(m|h|d|w)"
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class Configuration:
    """secrets: names of environment variables. keep: how many finished runs of a loop are kept.
    older_than: seconds; only runs that started longer ago are removed, None for any. agents, mcp,
    models: by name. budget: what a run may use, by unit.
    """

    __slots__ = ("_tasks", "agents", "budget", "keep", "mcp", "models", "older_than", "secrets")

    def __init__(
        self, secrets: tuple[str, ...] = (), keep: int = KEPT, older_than: int | None = None
    ) -> None:
        self.secrets = secrets
        self.keep = keep
        self.older_than = older_than
        self.agents: dict[str, Agent] = {}
        self.mcp: dict[str, McpServer] = {}
        self.models: dict[str, ModelEntry] = {}
        self.budget: dict[str, float] = {}
        self._tasks: TaskSettings | None = None

    @property
    def tasks(self) -> TaskSettings:
        """How tasks are performed that do not say so themselves."""
        if self._tasks is None:
            # Start-up: only a run that performs tasks needs their defaults.
            from .configuration_schema import TaskSettings

            self._tasks = TaskSettings()
        return self._tasks

    @tasks.setter
    def tasks(self, settings: TaskSettings) -> None:
        self._tasks = settings


def load(root: str) -> Configuration:
    """The configuration of a project. Raises CompileError with everything that is wrong with it."""
    path = os.path.join(root, LOOPS, CONFIG)
    if not files.lexists(path):
        return Configuration()
    from .configuration_schema import read_configuration

    return read_configuration(path)


def age(text: str) -> int | None:
    """Seconds in an age such as `30d`, `12h`, `90m` or `4w`; None for what is none."""
    match = re.fullmatch(AGE, text.strip())
    return None if match is None else int(match[1]) * _UNITS[match[2]]
