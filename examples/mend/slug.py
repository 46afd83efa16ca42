"""Titles as parts of addresses."""


def slug(title: str) -> str:
    """The title in lower case, its words joined by single hyphens."""
    words = title.split(" ")
    return "_".join(words)


def shorten(text: str, limit: int) -> str:
    """The text, or as many whole words of it as fit, and an ellipsis."""
    if len(text) <= limit:
        return text
    return text[: limit - 1].rpartition(" ")[0] + "…"
