"""The standard library's data: files in the language itself, prompts, and the price list.

No code but the function that reads them; every other package may import this one.
"""

from os.path import dirname, join


def read_text(name: str) -> str:
    """The text of the file `name` of this folder (UTF-8). Raises `OSError` if there is none."""
    with open(join(dirname(__file__), name), encoding="utf-8") as file:
        return file.read()
