"""`syntax-rules`: macros never capture names of a program and never lose their own."""

from __future__ import annotations

import pytest
from flow_texts import findings, value_text

from llc.frontend.expand.expansion import Environment, Limits

SWAP = "(define-syntax swap! (syntax-rules () ((_ a b) (let ((tmp a)) (set! a b) (set! b tmp)))))"
MY_OR = """(define-syntax my-or (syntax-rules ()
  ((_) false) ((_ e) e) ((_ e1 e2 ...) (let ((temp e1)) (if temp temp (my-or e2 ...))))))"""

# From R7RS 4.3, Clinger's papers, and known errors of implementations.
CASES = {
    # R7RS 4.3.1: names in a macro have the meaning of its definition
    """(let ((x 'outer))
         (define-syntax m (syntax-rules () ((m) x)))
         (let ((x 'inner)) (m)))""": "outer",
    # R7RS 4.3.1, letrec-syntax example
    MY_OR + """(let ((x false) (y 7) (temp 8)) (my-or x (let ((temp 9)) temp) y))""": "9",
    MY_OR + "(let ((temp 5)) (my-or false temp))": "5",
    SWAP + "(let ((tmp 1) (other 2)) (swap! tmp other) (list tmp other))": "(2 1)",
    # R7RS 4.3.2: `=>` is a literal only while it is unbound
    "(let ((=> false)) (cond (true => 'ok)))": "ok",
    "(let ((else false)) (cond (else 1) (true 2)))": "2",
    # R7RS 4.3.2: be-like-begin, an escaped ellipsis in a template
    """(define-syntax be-like-begin (syntax-rules ()
         ((_ name) (define-syntax name (syntax-rules () ((_ expr (... ...)) (begin expr (... ...))))))))
       (be-like-begin sequence)
       (sequence 1 2 3 4)""": "4",
    # the program hides a library name
    "(define-syntax m (syntax-rules () ((_ x) (list x x)))) (let ((list 5)) (m list))": "(5 5)",
    # a macro that defines a name given as argument, and one that defines a private name
    "(define-syntax def (syntax-rules () ((_ n v) (define n v)))) (def a 5) a": "5",
    """(define-syntax def (syntax-rules () ((_ v) (begin (define hidden v) hidden))))
       (define hidden 1) (def 2) hidden""": "1",
    # macros that use macros, and define macros
    """(define-syntax my-let (syntax-rules ()
         ((_ ((n v) ...) body ...) ((lambda (n ...) body ...) v ...))))
       (my-let ((a 1) (b 2)) (+ a b))""": "3",
    """(define-syntax my-let* (syntax-rules ()
         ((_ () body ...) (let () body ...))
         ((_ ((x v) rest ...) body ...) (let ((x v)) (my-let* (rest ...) body ...)))))
       (my-let* ((a 1) (b (+ a 1)) (a (* b 10))) (list a b))""": "(20 2)",
    # literals, nested ellipses, items after an ellipsis, dotted patterns, a custom ellipsis
    """(define-syntax for (syntax-rules (in)
         ((_ x in list body ...) (map (lambda (x) body ...) list))))
       (for y in '(1 2) (* y y))""": "(1 4)",
    """(define-syntax m (syntax-rules () ((_ (a b ...) ...) '((b ... a) ...))))
       (m (1 2 3) (4) (5 6))""": "((2 3 1) (4) (6 5))",
    "(define-syntax m (syntax-rules () ((_ (a ...) ...) '(a ... ...)))) (m (1 2) () (3))": "(1 2 3)",
    "(define-syntax m (syntax-rules () ((_ a ... b c) '(c b a ...)))) (m 1 2 3 4)": "(4 3 1 2)",
    "(define-syntax m (syntax-rules () ((_ a . b) '(b a)))) (m 1 2 3)": "((2 3) 1)",
    "(define-syntax m (syntax-rules ::: () ((_ a :::) '(a ::: ...)))) (m 1 2)": "(1 2 ...)",
    "(define-syntax m (syntax-rules () ((_ _ x) x))) (m 1 2)": "2",
    '(define-syntax m (syntax-rules () ((_ 1) "one") ((_ "a") "text") ((_ x) "other"))) (list (m 1) (m "a") (m 1.0))': '("one" "text" "other")',  # noqa: E501
    # quoted names are printed as written
    "(define-syntax m (syntax-rules () ((_ x) '(y x)))) (m y)": "(y y)",
    # user-defined while loops
    """(define-syntax my-while (syntax-rules ()
         ((_ test body ...) (let again () (when test body ... (again))))))
       (define again 0) (my-while (< again 3) (set! again (+ again 1))) again""": "3",
    # `item` belongs to the `map` that binds it, also inside a macro
    "(define-syntax tens (syntax-rules () ((_ list) (map (* item 10) list)))) (tens '(1 2))": "(10 20)",
    # a macro in a body is visible only there
    "(define (f) (define-syntax two (syntax-rules () ((_) 2))) (two)) (f)": "2",
}


@pytest.mark.parametrize(("text", "value"), CASES.items())
def test_macros_are_hygienic(text: str, value: str) -> None:
    """Each program has the value that it has after renaming every variable apart."""
    assert value_text(text) == value


ENDLESS = {
    "m becomes m": "(define-syntax m (syntax-rules () ((_ x) (m x)))) (m 1)",
    "its use grows": "(define-syntax m (syntax-rules () ((_ x) (m (x x))))) (m 1)",
    "uses multiply": "(define-syntax m (syntax-rules () ((_ x) (begin (m x) (m x))))) (m 1)",
    "uses nest": "(define-syntax m (syntax-rules () ((_ x) (list (m x) (m x))))) (m 1)",
    "data multiply": "(define-syntax m (syntax-rules () ((_ x ...) (m x ... x ...)))) (m 1)",
}


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
def test_endless_expansion_is_one_error(text: str) -> None:
    """The error is at the use of the macro, whatever way the expansion grows."""
    limits = Limits(expansions=5_000, data=100_000, depth=1_000)
    diagnostics = findings(text, Environment(limits=limits))
    assert len(diagnostics) == 1
    assert diagnostics[0].id in ("endless-expansion", "nesting-too-deep")


def test_a_long_use_of_a_recursive_macro_expands() -> None:
    """Two thousand operands, processed one by one, are within the limits."""
    assert value_text(f"{MY_OR} (my-or {'false ' * 2000} 7)") == "7"


BAD = {
    "(define-syntax m (syntax-rules () ((_ x ...) x))) 1": "bad-macro",
    "(define-syntax m (syntax-rules () ((_ x) (x ...)))) 1": "bad-macro",
    "(define-syntax m (syntax-rules () ((_ x x) 1))) 1": "bad-macro",
    "(define-syntax m (syntax-rules () ((_ x ... y ...) 1))) 1": "bad-macro",
    "(define-syntax m (syntax-rules ())) 1": "bad-macro",
    "(define-syntax m (lambda (x) x)) 1": "bad-macro",
    "(define-syntax m (syntax-rules () (x 1))) 1": "bad-macro",
    "(define-syntax m (syntax-rules () ((_ (a ...) (b ...)) '((a b) ...)))) (m (1) (2 3))": "uneven-repeat",
    "(define-syntax m (syntax-rules () ((_ a) 1))) (m)": "no-matching-rule",
    "(define-syntax if (syntax-rules () ((_ a) 1))) 1": "cannot-bind",
    "(when true (define-syntax m (syntax-rules () ((_) 1))))": "misplaced-definition",
    "(define-syntax m (syntax-rules () ((_) 1))) m": "form-as-value",
}


@pytest.mark.parametrize(("text", "id"), BAD.items())
def test_wrong_macro_is_one_error(text: str, id: str) -> None:
    """An error in a macro or in its use is one diagnostic."""
    assert [item.id for item in findings(text)] == [id]


def test_unbound_name_of_a_template_is_reported_at_the_use() -> None:
    """The message says where the name comes from."""
    [finding] = findings("(define-syntax m (syntax-rules () ((_ x) (nobody x))))\n(m 1)")
    assert finding.span is not None
    assert (finding.span.line, finding.label) == (2, "inserted by a macro")
