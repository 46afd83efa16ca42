"""Values with mixed list forms, which a program must not be able to distinguish."""

from __future__ import annotations

import random
from typing import Any

from llc.vm.values.lists import Queue, Slice, is_list, iterate, pair


def mixed(value: Any, chance: random.Random) -> Any:
    """A value equal to `value` whose lists, however deep, are of any form."""
    if type(value) is dict:
        return {key: mixed(item, chance) for key, item in value.items()}
    if not is_list(value):
        return value
    items = [mixed(item, chance) for item in iterate(value)]
    cut = chance.choice([0, len(items), chance.randint(0, len(items))])
    made: Any = tuple(items[cut:])
    if made and chance.random() < 0.5:
        made = Slice([*made, "after it"], len(made), 2 * len(made))
    if len(made) > 1 and chance.random() < 0.3:
        middle = chance.randint(1, len(made) - 1)
        made = Queue(tuple(made)[:middle], tuple(made)[middle:], len(made))
    for item in reversed(items[:cut]):
        made = pair(item, made)
    return made
