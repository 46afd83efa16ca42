"""Model providers: one row per provider.

A provider needs a row here and a module in `runtime/models/` with the functions that `models.provider`
describes.
"""

from __future__ import annotations

from ...ir.light_records import LightRecord


class Provider(LightRecord):
    """module: the module of `runtime/models/` that talks to it. package: the client package that the module
    imports. extra: the extra of llc that installs the package, "" if llc itself requires it.
    key, base_url: environment variables that the client reads; other_keys: those that replace `key`.
    prefixes: how names of its models begin.
    is_forced: its models can be forced to call a tool, so an answer in plain text is an error.
    """

    module: str
    package: str
    key: str
    base_url: str
    prefixes: tuple[str, ...]
    extra: str = ""
    is_forced: bool = False
    other_keys: tuple[str, ...] = ()


PROVIDERS = {
    "anthropic": Provider(
        "anthropic_provider",
        "anthropic",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        ("claude-",),
        is_forced=True,
        other_keys=("ANTHROPIC_AUTH_TOKEN",),
    ),
    "openai": Provider(
        "openai_provider",
        "openai",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        ("gpt-", "o1", "o3", "o4", "chatgpt-"),
        extra="openai",
    ),
}
# The provider of a model whose name does not say which.
DEFAULT = "anthropic"
