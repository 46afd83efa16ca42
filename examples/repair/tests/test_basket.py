from decimal import Decimal
import basket


def test_a_new_basket_is_empty():
    assert basket.add("apple") == ["apple"]
    assert basket.add("pear") == ["pear"]


def test_a_given_basket_is_filled():
    assert basket.add("pear", ["apple"]) == ["apple", "pear"]


def test_a_discount_is_taken_off():
    assert basket.total(["10.00", "5.00"], discount="10") == Decimal("13.5")


def test_labels():
    assert [basket.label(n) for n in (0, 1, 2)] == ["Your basket is empty", "1 item", "2 items"]
