"""Words of a text."""


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without surrounding punctuation."""
    return text.split(" ")


def longest(text: str) -> str:
    """Return the first of the longest words; '' if the text has no words."""
    return max(words(text), key=len)
