from slug import shorten, slug


def test_words_are_joined_by_hyphens():
    assert slug("a small step") == "a-small-step"


def test_case_and_blanks_do_not_matter():
    assert slug("  A  Small Step ") == "a-small-step"


def test_a_long_text_is_cut_between_words():
    assert shorten("one small step", 10) == "one small…"


def test_a_short_text_stays():
    assert shorten("one", 10) == "one"
