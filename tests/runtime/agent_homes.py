"""New home folders for real agent programs, configured for a model server on the loopback interface."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def environment_of(home: Path, program: Path, url: str) -> dict[str, str]:
    """Write the settings into a new `home`; return the environment variables that make an agent use them.

    program: folder of the agent program. url: address of the model server (`model_server`).
    """
    (home / ".gemini").mkdir(parents=True)
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(
        'model = "gpt-5.5"\nmodel_provider = "local"\ncheck_for_update_on_startup = false\n'
        "[analytics]\nenabled = false\n[features]\nplugins = false\n"
        f'[model_providers.local]\nname = "local"\nbase_url = "{url}/v1"\nenv_key = "TEST_KEY"\n'
        'wire_api = "responses"\nrequest_max_retries = 0\nstream_max_retries = 0\n'
    )
    (home / ".gemini" / "settings.json").write_text(
        json.dumps(
            {
                "security": {"auth": {"selectedType": "gemini-api-key"}},
                "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
                "privacy": {"usageStatisticsEnabled": False},
            }
        )
    )
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "k"},
        "models": {"m": {"cost": {"input": 1, "output": 2}, "limit": {"context": 200000, "output": 8000}}},
    }
    (home / "opencode.json").write_text(
        json.dumps(
            {
                "autoupdate": False,
                "share": "disabled",
                "model": "local/m",
                "small_model": "local/m",
                "provider": {"local": provider},
            }
        )
    )
    switched_off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    return {
        "PATH": f"{program}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "CODEX_HOME": str(home / ".codex"),
        "TEST_KEY": "k",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "sk-ant-test",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "GEMINI_API_KEY": "k",
        "GEMINI_MODEL": "gemini-2.5-flash",
        "GOOGLE_GEMINI_BASE_URL": url,
        "OPENCODE_CONFIG": str(home / "opencode.json"),
        **{f"OPENCODE_DISABLE_{feature}": "1" for feature in switched_off},
        # Requests to the vendors' servers are refused at once.
        "HTTPS_PROXY": url,
        "NO_PROXY": "127.0.0.1",
    }
