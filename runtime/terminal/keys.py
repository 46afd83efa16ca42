"""Key bindings shared by all prompts."""

from __future__ import annotations

from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys


def no_mouse() -> KeyBindings:
    """Initial bindings that ignore mouse events.

    The library parses them even if the mouse is not used, and fails on malformed ones.
    """
    keys = KeyBindings()

    @keys.add(Keys.Vt100MouseEvent)
    def _(event: KeyPressEvent) -> None:
        pass

    return keys
