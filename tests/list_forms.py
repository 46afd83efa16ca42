"""Values with mixed list forms, which a program must not be able to distinguish."""

from __future__ import annotations

import random
from typing import Any

from llc.vm.values.lists import Queue, Slice, is_list, iterate, pair


def mix_list_forms(value: Any, chance: random.Random) -> Any:
    """A value equal to `value` whose lists, at any depth, have random forms."""
    if type(value) is dict:
        return {key: mix_list_forms(item, chance) for key, item in value.items()}
    if not is_list(value):
        return value
    items = [mix_list_forms(item, chance) for item in iterate(value)]
    split = chance.choice([0, len(items), chance.randint(0, len(items))])
    result: Any = tuple(items[split:])
    if result and chance.random() < 0.5:
        result = Slice([*result, "after it"], len(result), 2 * len(result))
    if len(result) > 1 and chance.random() < 0.3:
        middle = chance.randint(1, len(result) - 1)
        result = Queue(tuple(result)[:middle], tuple(result)[middle:], len(result))
    for item in reversed(items[:split]):
        result = pair(item, result)
    return result
