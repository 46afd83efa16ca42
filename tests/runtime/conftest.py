"""Fixtures of the runtime tests: an effect context, a world and a model server."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from in_process import run_llc

from llc.runtime.effects.world import World
from llc.runtime.host.effect_context import Context, Interrupt

# Agent programs from the npm registry, and where they are installed.
CACHE = Path(__file__).parents[1] / ".cache"
PACKAGES = {
    "claude": ("claude-code-2.1.197", "@anthropic-ai/claude-code@2.1.197"),
    "codex": ("codex-0.169.0", "@openai/codex@0.169.0"),
    "opencode": ("opencode-1.18.33", "opencode-ai@1.18.33"),
    "gemini": ("gemini-cli-0.61.0", "@google/gemini-cli@0.61.0"),
    # One gigabyte together, so only for `make agents`. The first one needs Node 22.
    "claude-agent-acp": ("claude-agent-acp-0.101.0", "@agentclientprotocol/claude-agent-acp@0.101.0 node@22"),
    "codex-acp": ("codex-acp-2.6.0", "@agentclientprotocol/codex-acp@2.6.0"),
}


class Effect:
    """An effect as a machine requests it: a kind and arguments."""

    def __init__(self, kind: str, **args: Any) -> None:
        self.kind = kind
        self.args = args


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """Restore the signal handlers that a command in this process has changed."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _data(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test its own folder of user data (ledger, circuit breakers), outside any project."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))


@pytest.fixture
def project_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project as the working directory; colour settings of the environment do not apply."""
    (tmp_path / ".loops").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def llc(project_dir: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs llc in the empty project, in this process."""
    return run_llc


@pytest.fixture
def effect() -> type[Effect]:
    return Effect


@pytest.fixture
def interrupt() -> Iterator[Interrupt]:
    interrupt = Interrupt()
    yield interrupt
    interrupt.close()


@pytest.fixture
def context(interrupt: Interrupt) -> Callable[..., Context]:
    """Factory of effect contexts; keyword arguments replace the defaults."""

    def make(**fields: Any) -> Context:
        defaults: dict[str, Any] = {
            "run_id": "lint-1",
            # Unique to this process: stopping an effect ends every process that carries its id.
            "effect_id": f"lint-{os.getpid()}/7",
            "loop": "lint",
            "state": "check",
            "iteration": 2,
            "elapsed_ms": lambda: 0,
            "interrupt": interrupt,
        }
        return Context(**{**defaults, **fields})

    return make


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


@pytest.fixture
def perform(world: World, context: Callable[..., Context]) -> Callable[..., dict[str, Any]]:
    """`perform("shell", command="true")`; context fields go in `within={…}`."""

    def perform(kind: str, within: dict[str, Any] | None = None, **args: Any) -> dict[str, Any]:
        return world.perform(Effect(kind, **args), context(**(within or {})))

    return perform


@pytest.fixture(scope="session")
def answers() -> ModuleType:
    """The module `messages_server`, whose functions build the replies of the server."""
    return _module("messages_server")


@pytest.fixture(scope="session")
def chat(answers: ModuleType) -> ModuleType:
    """The module `openai_server`, whose functions build the replies of the server."""
    return _module("openai_server")


def _module(file: str) -> ModuleType:
    name = f"llc_tests_{file}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{file}.py"))
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture
def messages_server(answers: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Messages API on the loopback interface, and environment variables that select it."""
    with answers.MessagesServer() as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server


@pytest.fixture(scope="session")
def installed() -> Callable[[str], Path]:
    """Installs a program and returns the folder of its executable."""

    def install(name: str) -> Path:
        missing = [program for program in ("node", "npm") if shutil.which(program) is None]
        if missing:
            reason = f"{' and '.join(missing)} not on PATH: {name} cannot be installed"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)
        version, package = PACKAGES[name]
        folder = CACHE / version / "node_modules" / ".bin"
        if not (folder / name).exists():
            (CACHE / version).mkdir(parents=True, exist_ok=True)
            words = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(CACHE / version)]
            words += package.split()
            subprocess.run(words, check=True, timeout=600, capture_output=True, text=True)
        return folder

    return install
