"""Data files of the standard library: definitions in the language itself, ready loops, prompts and prices.

Contains no code except the function that reads the files. Every other package may import this package.
"""

from os.path import dirname, join

# Names of the loops in `ready/`, in the order of `llc create --from`.
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
    """Return the text of the file `name` in this folder (UTF-8). Raises `OSError` if it does not exist."""
    with open(join(dirname(__file__), name), encoding="utf-8") as file:
        return file.read()
