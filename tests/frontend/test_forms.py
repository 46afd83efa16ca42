"""The meaning of every form: tables of programs and their values."""

from __future__ import annotations

import pytest
from flow_texts import value_text

# From R7RS (sections 4 and 5) wherever the language overlaps with it, else from spec/language.md.
VALUES = {
    # 4.1 primitive expression types
    "'a": "a",
    "''a": "(quote a)",
    "'(a (b 1) \"c\")": '(a (b 1) "c")',
    "(let ((x 3)) (lambda (y) y) x)": "3",
    "((lambda (x) (+ x x)) 4)": "8",
    "(define reverse-subtract (lambda (x y) (- y x))) (reverse-subtract 7 10)": "3",
    "(define add4 (let ((x 4)) (lambda (y) (+ x y)))) (add4 6)": "10",
    "((lambda x x) 3 4 5 6)": "(3 4 5 6)",
    "((lambda (x y . z) z) 3 4 5 6)": "(5 6)",
    "(if (> 3 2) 'yes 'no)": "yes",
    "(if (> 3 2) (- 3 2) (+ 3 2))": "1",
    "(define x 2) (set! x 4) (+ x 1)": "5",
    "(define x 2) (set! x 7)": "7",
    # truth values
    "(map (lambda (x) (if x 1 0)) (list false null nil 0 0.0 \"\" (dict)))": "(0 0 0 0 0 0 0)",
    "(map (lambda (x) (if x 1 0)) (list true 1 -1 \"0\" '(0) 'a (dict (a 1)) car))": "(1 1 1 1 1 1 1 1)",
    # 4.2 derived
    "(cond ((> 3 2) 'greater) ((< 3 2) 'less))": "greater",
    "(cond ((> 3 3) 'greater) ((< 3 3) 'less) (else 'equal))": "equal",
    "(cond ((assoc 'b '((a 1) (b 2))) => cadr) (else false))": "2",
    "(cond (false 1) ((+ 1 1)))": "2",
    "(cond (false 1))": "()",
    "(case (* 2 3) ((2 3 5 7) 'prime) ((1 4 6 8 9) 'composite))": "composite",
    "(case (car '(c d)) ((a e i o u) 'vowel) ((w y) 'semivowel) (else => (lambda (x) x)))": "c",
    '(case "b" (("a" "b") 1) (else 2))': "1",
    "(case 5 ((1) 1))": "()",
    "(case '(1 2) (((1 2)) 'pair))": "pair",
    "(and (= 2 2) (> 2 1))": "true",
    "(and 1 2 'c '(f g))": "(f g)",
    "(and 1 0 2)": "0",
    "(and)": "true",
    "(or (= 2 2) (> 2 1))": "true",
    "(or (member 'b '(a b c)) (/ 3 0))": "(b c)",
    "(or 0 \"\" null)": "null",
    "(or)": "false",
    "(when (> 2 1) 1 2)": "2",
    "(when false 1)": "()",
    "(unless false 1 2)": "2",
    "(unless true 1)": "()",
    "(let ((x 2) (y 3)) (* x y))": "6",
    "(let ((x 2) (y 3)) (let ((x 7) (z (+ x y))) (* z x)))": "35",
    "(let ((x 2) (y 3)) (let* ((x 7) (z (+ x y))) (* z x)))": "70",
    "(let* ((x 1) (x (+ x 1))) x)": "2",
    "(let () 5)": "5",
    # a function bound with `bind` can call itself
    "(define (f) (bind down (lambda (n) (if (= n 0) 'done (down (- n 1))))) (down 3)) (f)": "done",
    "(bind down (lambda (n) (if (= n 0) 'done (down (- n 1))))) (down 3)": "done",
    "(bind a (lambda (n) (if (= n 0) 1 (b (- n 1))))) (bind b (lambda (n) (if (= n 0) 2 (a 0)))) (a 7)": "1",
    "(define (f) (bind a (lambda () (b))) (bind b (lambda () 1)) (bind b (lambda () 2)) (a)) (f)": "2",
    "(define (f) (if true (bind g (lambda (n) (if (= n 0) 'done (g 0)))) null) (g 1)) (f)": "done",
    """(letrec ((even? (lambda (n) (if (= 0 n) true (odd? (- n 1)))))
             (odd? (lambda (n) (if (= 0 n) false (even? (- n 1))))))
       (even? 88))""": "true",
    "(letrec* ((p (lambda (x) (+ 1 (q (- x 1))))) (q (lambda (y) (if (= y 0) 0 (+ 1 (p (- y 1)))))) (x (p 5)) (y x)) y)": "5",  # noqa: E501
    "(define x 0) (and (= x 0) (begin (set! x 5) (+ x 1)))": "6",
    "(begin)": "()",
    "(progn 1 2 3)": "3",
    # named let and loops
    """(let loop1 ((numbers '(3 -2 1 6 -5)) (nonneg '()) (neg '()))
       (cond ((null? numbers) (list nonneg neg))
             ((>= (car numbers) 0) (loop1 (cdr numbers) (cons (car numbers) nonneg) neg))
             ((< (car numbers) 0) (loop1 (cdr numbers) nonneg (cons (car numbers) neg)))))""": "((6 1 3) (-5 -2))",  # noqa: E501
    "(loop ((i 0) (sum 0)) (if (< i 5) (recur (+ i 1) (+ sum i)) sum))": "10",
    "(loop ((a 1) (b 2) (n 0)) (if (< n 1) (recur b a (+ n 1)) (list a b)))": "(2 1)",
    "(loop ((i 0)) (let ((j (+ i 1))) (cond ((< j 3) (recur j)) (else j))))": "3",
    "(define fs (loop ((i 0) (fs nil)) (if (< i 3) (recur (+ i 1) (cons (lambda () i) fs)) fs))) (map (lambda (f) (f)) fs)": "(2 1 0)",  # noqa: E501
    "(define n 0) (loop 3 (set! n (+ n 2)) (* n 10))": "60",
    "(define n 0) (loop (begin (set! n (+ n 1)) n) (set! n (+ n 10)) n)": "11",
    "(loop 0 1)": "()",
    "(loop 2.0 1)": "1",
    "(define n 0) (while (< n 3) (set! n (+ n 1)))": "()",
    "(define n 0) (while (< n 3) (set! n (+ n 1))) n": "3",
    "(define s 0) (for-each (lambda (x) (set! s (+ s x))) '(1 2 3)) s": "6",
    "(define s 0) (for-each (set! s (+ s item)) '(1 2 3)) s": "6",
    "(map (lambda (x) (* x x)) '(1 2 3))": "(1 4 9)",
    "(map + '(1 2) '(10 20))": "(11 22)",
    "(map (* item 10) '(1 2 3))": "(10 20 30)",
    "(map (map (* item 2) item) '((1 2) (3)))": "((2 4) (6))",
    "(define (twice x) (* 2 x)) (map twice '(1 2))": "(2 4)",
    # R7RS 4.2.4
    "(do ((i 0 (+ i 1)) (sum 0 (+ sum i))) ((= i 5) sum))": "10",
    "(let ((x '(1 3 5 7 9))) (do ((x x (cdr x)) (sum 0 (+ sum (car x)))) ((null? x) sum)))": "25",
    "(define n 0) (do ((i 0 (+ i 1)) (k 7)) ((= i 3)) (set! n (+ n k)))": "()",
    "(define n 0) (do ((i 0 (+ i 1)) (k 7)) ((= i 3)) (set! n (+ n k))) n": "21",
    # definitions
    "(define (f x . rest) (list x rest)) (f 1 2 3)": "(1 (2 3))",
    "(define (f) (define a 1) (define (g) (* a 2)) (g)) (f)": "2",
    "(define (even n) (if (= n 0) true (odd (- n 1)))) (define (odd n) (if (= n 0) false (even (- n 1)))) (even 7)": "false",  # noqa: E501
    "(let ((x 5)) (define foo (lambda (y) (bar x y))) (define bar (lambda (a b) (+ (* a b) a))) (foo (+ x 3)))": "45",  # noqa: E501
    "(define (f a &optional b (c (+ a 1)) &rest d) (list a b c d)) (list (f 1) (f 1 2) (f 1 2 3) (f 1 2 3 4))": "((1 null 2 ()) (1 2 2 ()) (1 2 3 ()) (1 2 3 (4)))",  # noqa: E501
    # bind
    "(bind x 5)": "5",
    "(bind x 1) (bind x (+ x 1)) x": "2",
    "(if true (bind x 1) (bind x 2)) x": "1",
    "(define (f) (when true (bind y 3)) (progn (bind z 4)) (+ y z)) (f)": "7",
    "(loop 3 (bind last 7)) last": "7",
    "(define x 1) (define (f) (bind x 2) x) (list (f) x)": "(2 1)",
    "(define (f x) (bind x (+ x 1)) x) (f 1)": "2",
    "(let ((a 1)) (bind a 2) a)": "2",
    "(define (f) (+ (bind a 1) (bind b 2) a b)) (f)": "6",
    # quasiquote
    "`(list ,(+ 1 2) 4)": "(list 3 4)",
    "(let ((name 'a)) `(list ,name ',name))": "(list a (quote a))",
    "`(a ,(+ 1 2) ,@(map abs '(4 -5 6)) b)": "(a 3 4 5 6 b)",
    "`((foo ,(- 10 3)) ,@(cdr '(c)) ,@(cdr '(d e)))": "((foo 7) e)",
    "`(a `(b ,(c ,(+ 1 2))))": "(a (quasiquote (b (unquote (c 3)))))",
    "`(1 . ,(list 2 3))": "(1 2 3)",
    "`(,@(list 1 2))": "(1 2)",
    "`()": "()",
    # faults
    "(try (/ 1 0) (catch e (get e \"kind\")))": '"division-by-zero"',
    "(try 1 (catch e 2))": "1",
    "(try (error \"a\") (catch (e) (get-field e 'message)))": '"a"',
    "(try (error 'missing \"no file\" \"x\" 2) (catch e (list (get e \"kind\") (get e \"message\"))))": '("missing" "no file x 2")',  # noqa: E501
    "(try (error \"bad\" 1 '(2)) (catch e (get-field e \"details.values\")))": "(1 (2))",
    "(define log nil) (define v (try 1 (finally (set! log (cons 'f log))))) (list v log)": "(1 (f))",
    "(define log nil) (define v (try (error \"x\") (catch e (set! log (cons 'c log)) 2) (finally (set! log (cons 'f log))))) (list v log)": "(2 (f c))",  # noqa: E501
    "(define n 0) (try (try (error \"x\") (finally (set! n 1))) (catch e (list n (get e \"message\"))))": '(1 "x")',  # noqa: E501
    "(try (try (error 'k \"x\") (catch e (error e))) (catch e (get e \"kind\")))": '"k"',
    "(map error '(1))": "fault: user",
    "(try (map error '(\"boom\")) (catch e (get e \"message\")))": '"boom"',
    "(assert (+ 1 1))": "2",
    "(assert (= 1 2))": "fault: assertion",
    "(try (assert (= 1 2)) (catch e (get e \"message\")))": '"assertion failed: (= 1 2)"',
    "(try (assert false \"why\") (catch e (get e \"message\")))": '"why"',
    "(loop (- 1) 2)": "fault: type-error",
    "(loop (car '(1.5)) 2)": "fault: type-error",
    "(define (f) y) (define x (f)) (define y 1) x": "fault: uninitialised",
    "(letrec ((x (lambda () y)) (z (x)) (y 1)) z)": "fault: uninitialised",
    # dict
    "(get (dict (a 1) (\"b\" 2)) \"b\")": "2",
    "(let ((a \"k\")) (keys (dict (a 1) ('c 3) ((string-append a \"2\") 2))))": '("a" "c" "k2")',
    # apply
    "(apply + (list 3 4))": "7",
    "(apply + 1 2 '(3))": "6",
    "(define compose (lambda (f g) (lambda args (f (apply g args))))) ((compose abs *) -12 75)": "900",
    "(map (lambda (f) (apply f '(1 2))) (list + list))": "(3 (1 2))",
    "(apply apply (list + '(1 2)))": "3",
    # tail calls and depth
    "(define (spin n) (if (= n 0) 'done (spin (- n 1)))) (spin 100000)": "done",
    "(define (even n) (cond ((= n 0) true) (else (odd (- n 1))))) (define (odd n) (and (> n 0) (even (- n 1)))) (even 50001)": "false",  # noqa: E501
    "(define (count n) (if (= n 0) 0 (+ 1 (count (- n 1))))) (count 20000)": "20000",
}  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VALUES.items())
def test_value_of_a_form(text: str, value: str) -> None:
    assert value_text(text) == value
