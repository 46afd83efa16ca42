"""Project settings and their defaults: plain records that every run can import cheaply.

`configuration_schema` reads them from `.loops/config.yaml`; a test compares the fields of both modules.
"""

from __future__ import annotations

from ...ir.light_records import LightRecord, field
from ...ir.python_internals import re
from ..host.paths import KEPT

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Start-up time: the schema engine imports attrs, which a run without MCP servers does not need.
    from ...frontend.tasks.mcp_servers import McpServer
    from .agent_schema import AgentSpec

AGE = r"(\d{1,6})\s*(m|h|d|w)"
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
SIZE = r"(\d{1,6}(?:\.\d{1,3})?)\s*(B|[kK]B|MB|GB|TB)"
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


class ModelEntry(LightRecord):
    """A model that the project names itself.

    Args:
        provider: key of `PROVIDERS`; "" to derive the provider from the model name.
        model: the provider's name for the model; "" if it equals the entry's name.
        base_url: address of the server; None for the provider's default.
        key: environment variable that contains the API key; None for the provider's default.
        price: USD per million input tokens and per million output tokens; None if unknown.
    """

    provider: str = ""
    model: str = ""
    base_url: str | None = None
    key: str | None = None
    price: tuple[float, float] | None = None


class TaskSettings(LightRecord):
    """Default settings of tasks.

    Args:
        model: model name; "" for the built-in default.
        runner: one of `ir.effects.RUNNERS`.
        agent: a name of `agents`, or a program and its arguments.
        max_tokens: limit of the answer.
        timeout: seconds.
        file_bytes: maximum number of bytes of one file in a prompt.
        files_bytes: maximum number of bytes of all files in a prompt.
    """

    model: str = ""
    runner: str = "model"
    agent: str | tuple[str, ...] = ()
    max_tokens: int = 8192
    timeout: float = 600.0
    file_bytes: int = 256 << 10
    files_bytes: int = 1 << 20


class Configuration(LightRecord):
    """Configuration of a project.

    Args:
        secrets: names of environment variables whose values are secret.
        retention: maximum number of finished runs per loop, minimum age in seconds before a run is removed,
            maximum size of all finished runs in bytes.
        agents: agent programs by name.
        mcp: MCP servers by name.
        models: models by name.
        tasks: default settings of tasks.
        budget: limits of one run, by unit.
        ledgers: limits of all runs of the project per `day`, per `month` and in total (`project`), by unit.
        record_files: one of `ir.effects.RECORD_FILES`.
        database: URL of the cluster's database.
        workspace: repository and ref that runs of a cluster check out; None for the worker's folder.
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
    """Seconds in an age such as `30d`, `12h`, `90m` or `4w`; None if the text is not an age."""
    match = re.fullmatch(AGE, text.strip())
    return None if match is None else int(match[1]) * _UNITS[match[2]]


def size(text: str) -> int | None:
    """Bytes in a size such as `2GB` or `1.5 GB`, in decimal units; None if the text is not a size."""
    match = re.fullmatch(SIZE, text.strip())
    return None if match is None else int(float(match[1]) * _BYTES[match[2].lower()])
