from words import longest, words


def test_words_are_bare_and_in_lower_case():
    assert words("Hello, World!") == ["hello", "world"]


def test_white_space_of_any_kind_separates():
    assert words("a\tb\n c") == ["a", "b", "c"]


def test_the_first_of_the_longest():
    assert longest("one two three seven") == "three"


def test_no_words_no_longest():
    assert longest("") == ""
