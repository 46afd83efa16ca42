"""Images and machines from programs in text form; each image goes through its file format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llc.ir.text import parse_program
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.tiered import Machine


def _image(text: str) -> Image:
    return Image.from_bytes(emit(parse_program("program `test` entry main\n" + text, "<test>")).to_bytes())


@pytest.fixture
def image_of() -> Callable[[str], Image]:
    """Function that returns the image of a program text; the entry is `main`."""
    return _image


@pytest.fixture
def machine_of() -> Callable[..., Machine]:
    """Function that returns a machine for a program text; further arguments are those of the machine."""

    def machine(text: str, *args: Any, **options: Any) -> Machine:
        return Machine(_image(text), *args, **options)

    return machine
