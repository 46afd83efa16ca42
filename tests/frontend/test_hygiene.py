"""`syntax-rules`: macros never capture names of a program and never lose their own."""

from __future__ import annotations

import pytest
from flow_texts import findings, value_text

from llc.frontend.expand.expansion import Environment, Limits

SWAP = "(define-syntax swap! (syntax-rules () ((_ a b) (let ((tmp a)) (set! a b) (set! b tmp)))))"
MY_OR = """(define-syntax my-or (syntax-rules ()
  ((_) false) ((_ e) e) ((_ e1 e2 ...) (let ((temp e1)) (if temp temp (my-or e2 ...))))))"""

# From R7RS 4.3, Clinger's papers, and what implementations got wrong.
CASES = {
    # R7RS 4.3.1: a macro's names mean what they meant where it was defined
    """(let ((x 'outer))
         (define-syntax m (syntax-rules () ((m) x)))
         (let ((x 'inner)) (m)))""": "outer",
    # R7RS 4.3.1, letrec-syntax example
    MY_OR + """(let ((x false) (y 7) (temp 8)) (my-or x (let ((temp 9)) temp) y))""": "9",
    MY_OR + "(let ((temp 5)) (my-or false temp))": "5",
    SWAP + "(let ((tmp 1) (other 2)) (swap! tmp other) (list tmp other))": "(2 1)",
    # R7RS 4.3.2: `=>` is a literal only while nobody binds it
    "(let ((=> false)) (cond (true => 'ok)))": "ok",
    "(let ((else false)) (cond (else 1) (true 2)))": "2",
    # R7RS 4.3.2: be-like-begin, an ellipsis in a template that is escaped
    """(define-syntax be-like-begin (syntax-rules ()
         ((_ name) (define-syntax name (syntax-rules () ((_ expr (... ...)) (begin expr (... ...))))))))
       (be-like-begin sequence)
       (sequence 1 2 3 4)""": "4",
    # a name of the library that the program hides
    "(define-syntax m (syntax-rules () ((_ x) (list x x)))) (let ((list 5)) (m list))": "(5 5)",
    # a macro that defines a name it is given, and one that defines a name of its own
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
    # literals, nested ellipses, items after an ellipsis, dotted patterns, an ellipsis of one's own
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
    # quoted names are as they were written
    "(define-syntax m (syntax-rules () ((_ x) '(y x)))) (m y)": "(y y)",
    # while loops of one's own, with break-free control through forms that are bound elsewhere
    """(define-syntax my-while (syntax-rules ()
         ((_ test body ...) (let again () (when test body ... (again))))))
       (define again 0) (my-while (< again 3) (set! again (+ again 1))) again""": "3",
    # `item` belongs to the `map` that binds it, also inside a macro
    "(define-syntax tens (syntax-rules () ((_ list) (map (* item 10) list)))) (tens '(1 2))": "(10 20)",
    # a macro in a body, seen there only
    "(define (f) (define-syntax two (syntax-rules () ((_) 2))) (two)) (f)": "2",
}


@pytest.mark.parametrize(("text", "value"), CASES.items())
def test_macros_are_hygienic(text: str, value: str) -> None:
    """Each program gives the value that renaming every variable apart would give."""
    assert value_text(text) == value


ENDLESS = {
    "m becomes m": "(define-syntax m (syntax-rules () ((_ x) (m x)))) (m 1)",
    "its use grows": "(define-syntax m (syntax-rules () ((_ x) (m (x x))))) (m 1)",
    "uses multiply": "(define-syntax m (syntax-rules () ((_ x) (begin (m x) (m x))))) (m 1)",
    "uses nest": "(define-syntax m (syntax-rules () ((_ x) (list (m x) (m x))))) (m 1)",
    "data multiply": "(define-syntax m (syntax-rules () ((_ x ...) (m x ... x ...)))) (m 1)",
}


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
def test_a_macro_that_expands_for_ever_is_stopped(text: str) -> None:
    """Whatever way an expansion goes on, one finding ends it, on the macro's use."""
    limits = Limits(expansions=5_000, data=100_000, depth=1_000)
    found = findings(text, Environment(limits=limits))
    assert len(found) == 1
    assert found[0].id in ("endless-expansion", "nesting-too-deep")


def test_a_long_use_of_a_recursive_macro_expands() -> None:
    """Two thousand operands, taken one by one, are within the limits."""
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
def test_a_wrong_macro_is_told(text: str, id: str) -> None:
    """What is wrong with a macro, or a use of one, is one finding."""
    assert [item.id for item in findings(text)] == [id]


def test_an_unbound_name_of_a_template_is_told_at_the_use() -> None:
    """The finding stands where the macro is used, and says where the name comes from."""
    [finding] = findings("(define-syntax m (syntax-rules () ((_ x) (nobody x))))\n(m 1)")
    assert finding.span is not None
    assert (finding.span.line, finding.label) == (2, "a macro puts this name here")
