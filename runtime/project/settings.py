"""The settings of a project, with their defaults: records without a reader, light enough for every run.

`configuration_schema` reads them from `.loops/config.yaml`; a test compares the fields.
"""

from __future__ import annotations

from ...ir.light_records import LightRecord, field
from ...ir.python_internals import re
from ..host.paths import KEPT

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Start-up: the schema engine needs attrs, which a run without MCP servers does not load.
    from ...frontend.tasks.mcp_servers import McpServer
    from .agent_schema import AgentSpec

AGE = r"(\d{1,6})\s*(m|h|d|w)"
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
SIZE = r"(\d{1,6}(?:\.\d{1,3})?)\s*(B|[kK]B|MB|GB|TB)"
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


class ModelEntry(LightRecord):
    """A model by a name of the project's own. provider, model: "" if the name itself tells.

    key: the environment variable with the API key. price: USD per million tokens of input and of output.
    """

    provider: str = ""
    model: str = ""
    base_url: str | None = None
    key: str | None = None
    price: tuple[float, float] | None = None


class TaskSettings(LightRecord):
    """How tasks are performed that do not say so themselves.

    agent: a name of `agents`, or a program and its arguments. timeout: seconds.
    file_bytes, files_bytes: how much of one file, and of all together, a prompt contains at most.
    """

    model: str = ""
    runner: str = "model"
    agent: str | tuple[str, ...] = ()
    max_tokens: int = 8192
    timeout: float = 600.0
    file_bytes: int = 256 << 10
    files_bytes: int = 1 << 20


class Configuration(LightRecord):
    """secrets: names of environment variables. retention: how many finished runs of a loop are
    kept; the age in seconds below which none is removed; the bytes that all of them may have. agents, mcp,
    models: by name. budget: what a run may use, by unit. ledgers: what all runs of the project may use in a
    `day`, in a `month` or ever (`project`), by unit. record_files: one of `ir.effects.RECORD_FILES`.
    database: the address of the cluster's database.
    workspace: the repository and the ref that runs of a cluster work on, None for the worker's folder.
    """

    secrets: tuple[str, ...] = ()
    retention: tuple[int, int | None, int | None] = (KEPT, None, None)
    agents: dict[str, AgentSpec] = field(factory=dict)
    mcp: dict[str, McpServer] = field(factory=dict)
    models: dict[str, ModelEntry] = field(factory=dict)
    tasks: TaskSettings = field(factory=TaskSettings)
    budget: dict[str, float] = field(factory=dict)
    ledgers: dict[str, dict[str, float]] = field(factory=dict)
    record_files: str = "agents"
    database: str | None = None
    workspace: tuple[str, str] | None = None


def age(text: str) -> int | None:
    """Seconds in an age such as `30d`, `12h`, `90m` or `4w`; None for what is none."""
    match = re.fullmatch(AGE, text.strip())
    return None if match is None else int(match[1]) * _UNITS[match[2]]


def size(text: str) -> int | None:
    """Bytes in a size such as `2GB`, `1.5 GB` or `300MB`, in decimal units; None for what is none."""
    match = re.fullmatch(SIZE, text.strip())
    return None if match is None else int(float(match[1]) * _BYTES[match[2].lower()])
