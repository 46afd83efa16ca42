"""Titles as parts of URLs."""


def slug(title: str) -> str:
    """Return the title in lower case, with its words joined by single hyphens."""
    words = title.split(" ")
    return "_".join(words)


def shorten(text: str, limit: int) -> str:
    """Return the text, or the whole words that fit into the limit and an ellipsis."""
    if len(text) <= limit:
        return text
    return text[: limit - 1].rpartition(" ")[0] + "…"
