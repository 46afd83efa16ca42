"""The library against R7RS: the examples of the standard (section numbers are its own).

`#t` and `#f` are `true` and `false` here, the empty list is `nil`. Where the language differs, the row
stands in the last table, with what it does instead.
"""

from __future__ import annotations

import pytest
from flow_runs import outcome_of

EQUIVALENCE = [  # 6.1
    ("(eqv? 'a 'a)", "true"),
    ("(eqv? 'a 'b)", "false"),
    ("(eqv? 2 2)", "true"),
    ("(eqv? nil nil)", "true"),
    ("(eqv? 100000000 100000000)", "true"),
    ("(eqv? (lambda () 1) (lambda () 2))", "false"),
    ("(let ((p (lambda (x) x))) (eqv? p p))", "true"),
    ("(eqv? false nil)", "false"),
    ("(eq? 'a 'a)", "true"),
    ("(eq? nil nil)", "true"),
    ("(eq? car car)", "true"),
    ("(equal? 'a 'a)", "true"),
    ("(equal? '(a) '(a))", "true"),
    ("(equal? '(a (b) c) '(a (b) c))", "true"),
    ('(equal? "abc" "abc")', "true"),
    ("(equal? 2 2)", "true"),
]
NUMBERS = [  # 6.2.6
    ("(number? 1.5)", "true"),
    ("(integer? 3.0)", "true"),
    ("(integer? 3.5)", "false"),
    ("(= 1 1.0 1)", "true"),
    ("(< 1 2 2)", "false"),
    ("(<= 1 2 2)", "true"),
    ("(max 3 4)", "4"),
    ("(max 3.9 4)", "4.0"),
    ("(+ 3 4)", "7"),
    ("(+ 3)", "3"),
    ("(+)", "0"),
    ("(* 4)", "4"),
    ("(*)", "1"),
    ("(- 3 4)", "-1"),
    ("(- 3 4 5)", "-6"),
    ("(- 3)", "-3"),
    ("(/ 20 5 2)", "2"),
    ("(abs -7)", "7"),
    ("(modulo 13 4)", "1"),
    ("(remainder 13 4)", "1"),
    ("(modulo -13 4)", "3"),
    ("(remainder -13 4)", "-1"),
    ("(modulo 13 -4)", "-3"),
    ("(remainder 13 -4)", "1"),
    ("(modulo -13 -4)", "-1"),
    ("(remainder -13 -4)", "-1"),
    ("(remainder -13 -4.0)", "-1.0"),
    ("(quotient 13 4)", "3"),
    ("(quotient -13 4)", "-3"),
    ("(quotient 13 -4)", "-3"),
    ("(quotient -13 -4)", "3"),
    ("(quotient 5 0)", "! division-by-zero"),
    ("(gcd 32 -36)", "4"),
    ("(gcd)", "0"),
    ("(lcm 32 -36)", "288"),
    ("(lcm 32.0 -36)", "288.0"),
    ("(lcm)", "1"),
    ("(floor -4.3)", "-5.0"),
    ("(ceiling -4.3)", "-4.0"),
    ("(truncate -4.3)", "-4.0"),
    ("(round -4.3)", "-4.0"),
    ("(floor 3.5)", "3.0"),
    ("(ceiling 3.5)", "4.0"),
    ("(truncate 3.5)", "3.0"),
    ("(round 3.5)", "4.0"),
    ("(round 2.5)", "2.0"),
    ("(round -2.5)", "-2.0"),
    ("(round 7)", "7"),
    ("(sqrt 9)", "3"),
    ("(sqrt 2.25)", "1.5"),
    ("(exact 4.0)", "4"),
    ("(inexact 4)", "4.0"),
    ("(expt 2 10)", "1024"),
    ("(expt 0 0)", "1"),
    ("(expt 0.0 0)", "1.0"),
    ("(expt 0 5)", "0"),
    ("(expt -1 101)", "-1"),
    ("(expt 2 0.5)", "1.4142135623730951"),
    ("(zero? 0.0)", "true"),
    ("(odd? -3)", "true"),
    ("(even? 2.0)", "true"),
    ("(+ 1 9007199254740993)", "9007199254740994"),
    ("(* 99999999999 99999999999)", "9999999999800000000001"),
    ("(number->string 10)", '"10"'),
    ('(parse-number "100")', "100"),
    ('(parse-number "1e2")', "100.0"),
]
TRUTH = [  # 6.3, 6.5
    ("(not true)", "false"),
    ("(not false)", "true"),
    ("(not 3)", "false"),
    ("(boolean? false)", "true"),
    ("(boolean? 0)", "false"),
    ("(boolean? '())", "false"),
    ("(symbol? 'foo)", "true"),
    ("(symbol? (car '(a b)))", "true"),
    ('(symbol? "bar")', "false"),
    ("(symbol->string 'flying-fish)", '"flying-fish"'),
    ('(string->symbol "mISSISSIppi")', "mISSISSIppi"),
    ('(equal? \'bitBlt (string->symbol "bitBlt"))', "true"),
]
LISTS = [  # 6.4
    ("(pair? '(a b c))", "true"),
    ("(pair? '())", "false"),
    ("(cons 'a '())", "(a)"),
    ("(cons '(a) '(b c d))", "((a) b c d)"),
    ('(cons "a" \'(b c))', '("a" b c)'),
    ("(car '(a b c))", "a"),
    ("(car '((a) b c d))", "(a)"),
    ("(car '())", "! empty-list"),
    ("(cdr '((a) b c d))", "(b c d)"),
    ("(cdr '())", "! empty-list"),
    ("(list? '(a b c))", "true"),
    ("(list? '())", "true"),
    ("(null? '())", "true"),
    ("(list 'a (+ 3 4) 'c)", "(a 7 c)"),
    ("(list)", "()"),
    ("(length '(a b c))", "3"),
    ("(length '(a (b) (c d e)))", "3"),
    ("(length '())", "0"),
    ("(append '(a) '(b c d))", "(a b c d)"),
    ("(append '(a (b)) '((c)))", "(a (b) (c))"),
    ("(append)", "()"),
    ("(reverse '(a b c))", "(c b a)"),
    ("(reverse '(a (b c) d (e (f))))", "((e (f)) d (b c) a)"),
    ("(list-tail '(a b c) 2)", "(c)"),
    ("(list-ref '(a b c d) 2)", "c"),
    ("(list-ref '(a b c d) (exact (round 1.8)))", "c"),
    ("(member (list 'a) '(b (a) c))", "((a) c)"),
    ("(member 'd '(a b c))", "false"),
    ("(assoc 'b '((a 1) (b 2)))", "(b 2)"),
    ("(assoc (list 'a) '(((a)) ((b)) ((c))))", "((a))"),
    ("(assoc 2.0 '((1 one) (2 two)))", "(2 two)"),
    ("(assoc 'd '((a 1)))", "false"),
]
STRINGS = [  # 6.7
    ('(string-length "abc")', "3"),
    ('(string=? "a" "a" "b")', "false"),
    ('(string<? "a" "b" "c")', "true"),
    ('(substring "abcde" 1 3)', '"bc"'),
    ("(string-append)", '""'),
    ('(string-append "a" "b" "c")', '"abc"'),
]
CONTROL = [  # 6.10
    ("(procedure? car)", "true"),
    ("(procedure? 'car)", "false"),
    ("(procedure? (lambda (x) (* x x)))", "true"),
    ("(apply + (list 3 4))", "7"),
    (
        "(let ((compose (lambda (f g) (lambda (&rest args) (f (apply g args)))))) ((compose sqrt *) 12 75))",
        "30",
    ),
    ("(map cadr '((a b) (d e) (g h)))", "(b e h)"),
    ("(map (lambda (n) (expt n n)) '(1 2 3 4 5))", "(1 4 27 256 3125)"),
    ("(map + '(1 2 3) '(4 5 6))", "(5 7 9)"),
    ("(map + '(1 2 3) '(4 5))", "(5 7)"),
    ("(let ((n 0)) (for-each (lambda (x y) (set! n (+ n (* x y)))) '(1 2) '(3 4)) n)", "11"),
]
DIFFERENCES = [
    # No rationals: a non-integer quotient is a float.
    ("(/ 3 4 5)", "0.15"),
    ("(/ 3)", "0.3333333333333333"),
    ("(expt 2 -2)", "0.25"),
    # No complex numbers.
    ("(sqrt -1)", "! no-real-number"),
    # A list's tail is a list.
    ("(cons 'a 3)", "! type-error"),
    ("(append '(a) 'b)", "! type-error"),
    # Equality is by value.
    ("(eqv? 2 2.0)", "true"),
    ("(eq? (list 'a) (list 'a))", "true"),
    ('(eqv? (string-append "a") "a")', "true"),
    # Other values besides `#f` are false.
    ("(not 0)", "true"),
    ("(not '())", "true"),
    # `null` is the empty list.
    ("(length null)", "0"),
    ("(null? null)", "true"),
]


@pytest.mark.parametrize(
    ("expression", "outcome"),
    EQUIVALENCE + NUMBERS + TRUTH + LISTS + STRINGS + CONTROL,
    ids=lambda text: text[:60],
)
def test_standard_examples(expression: str, outcome: str) -> None:
    """Examples of R7RS and consequences of its text."""
    assert outcome_of(f"(begin {expression})") == outcome


@pytest.mark.parametrize(("expression", "outcome"), DIFFERENCES, ids=lambda text: text[:60])
def test_differences_from_the_standard(expression: str, outcome: str) -> None:
    assert outcome_of(expression) == outcome
