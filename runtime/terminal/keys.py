"""Keys that mean the same wherever somebody types."""

from __future__ import annotations

from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys


def no_mouse() -> KeyBindings:
    """Bindings to begin with: what a mouse says, which nobody asked for, is dropped unread.

    The library reads it even so, and takes what is malformed for an accident of ours.
    """
    keys = KeyBindings()

    @keys.add(Keys.Vt100MouseEvent)
    def _(event: KeyPressEvent) -> None:
        pass

    return keys
