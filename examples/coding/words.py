"""Words of a text."""


def words(text: str) -> list[str]:
    """The words, in lower case and without punctuation around them."""
    return text.split(" ")


def longest(text: str) -> str:
    """The longest word; the first of several, '' where there are none."""
    return max(words(text), key=len)
