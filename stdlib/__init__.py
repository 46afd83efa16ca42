"""The standard library's data: files in the language itself, ready loops, prompts, and the price list.

No code but the function that reads them; every other package may import this one.
"""

from os.path import dirname, join

# The loops in `ready/`, in the order in which they are listed.
READY_LOOPS = (
    "lint",
    "types",
    "tests",
    "coverage",
    "dependency-bump",
    "docs-drift",
    "review-sweep",
    "migration",
)


def read_text(name: str) -> str:
    """The text of the file `name` of this folder (UTF-8). Raises `OSError` if there is none."""
    with open(join(dirname(__file__), name), encoding="utf-8") as file:
        return file.read()
