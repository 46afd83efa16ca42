"""Diagnostics of programs before execution, on the line that causes them."""

from __future__ import annotations

import re

import pytest
from flow_texts import findings, marks

from llc.frontend.compile import compile_text
from llc.frontend.expand.foreign_names import _INSTEAD

# Programs are separated by blank lines. A mark is on the line of its diagnostic.
PROGRAMS = """
(define (f x)
  (if (> x 1) 2)) ; error: missing-else
(let ((a 1)
      (b (+ a 1))) ; error: unbound-name
  b)
(lambda (x
         x) ; error: repeated-name
  x)
(f
   (g 2)) ; error: unbound-name

(define (f) 1)
(f 1) ; error: wrong-arity
(cons 1) ; error: wrong-arity
((lambda (x) x) 1 2) ; error: wrong-arity
(let ((g (lambda (a &optional b) (list a b)))) (g 1) (g 1 2)
  (g)) ; error: wrong-arity
(apply f 1 '(2)) ; error: wrong-arity

(1 2) ; error: not-a-function
("a") ; error: not-a-function
('(1 2) 3) ; error: not-a-function
(define limit 3)
(limit) ; error: not-a-function
(define maybe (lambda (x) x))
(set! maybe 3)
(maybe)

(let ((if 1)) 2) ; error: cannot-bind
(define cond 1) ; error: cannot-bind
(lambda (let) 1) ; error: cannot-bind
(bind when 1) ; error: cannot-bind
(try 1 (catch loop 2)) ; error: cannot-bind
(let ((*loop-config* 1)) 2) ; error: cannot-bind
(define (error x) x)
(define (dict list) list)

(set! nowhere 1) ; error: unbound-name
(set! car 1) ; error: cannot-set
(set! 5 1) ; error: bad-binding

(let ((x 1) (x 2)) x) ; error: repeated-name
(define a 1)
(define a 2) ; error: repeated-name
(define (f) (define b 1) (define b 2) b) ; error: repeated-name
(loop ((i 0) (i 1)) i) ; error: repeated-name

(let (x 1) x) ; error: bad-binding

(let ((x)) x) ; error: bad-binding
(let (x) x) ; error: bad-binding
(let ((x 1 2)) x) ; error: bad-binding
(let 5 6) ; error: bad-binding
(lambda (5) 1) ; error: bad-parameter
(lambda (&rest) 1) ; error: bad-parameter
(lambda (a &rest b c) 1) ; error: bad-parameter
(lambda (x)) ; error: bad-form
(define (f)) ; error: empty-body
(define x) ; error: bad-form
(define y 1 2) ; error: bad-form

(when true (define x 1)) ; error: misplaced-definition
(+ 1 (define y 2)) ; error: misplaced-definition
(let () (import "a.sexp") 1) ; error: misplaced-import

(if) ; error: bad-form
(if 1 2 3 4) ; error: bad-form
(quote 1 2) ; error: bad-form
(set! x) ; error: bad-form
(map if '(1)) ; error: form-as-value
(f . x) ; error: dotted-list
'(a . b) ; error: dotted-list

(cond (else 1)
      (true 2)) ; error: bad-clause
(cond 5) ; error: bad-clause
(case 1 (2 3)) ; error: bad-clause
(try 1) ; error: missing-clause
(try 1 (catch e 2) (catch e 3)) ; error: repeated-clause
(try 1 (finally 2) (catch e 3)) ; error: bad-clause
(try 1 (catch) 2) ; error: bad-clause error: bad-clause

(recur 1) ; error: recur-outside-loop
(loop ((i 0)) (+ 1 (recur i))) ; error: recur-not-last
(loop ((i 0)) (begin (recur i) 2)) ; error: recur-not-last
(loop ((i 0)) (recur)) ; error: wrong-arity
(loop ((i 0)) (map (lambda (x) (recur x)) i)) ; error: recur-outside-loop
(loop ((i 0)) (try (recur i) (catch e 1))) ; error: recur-outside-loop
(loop 3 (recur)) ; error: recur-outside-loop
(loop -1 2) ; error: bad-count
(loop 3) ; error: bad-form
(loop 2.5 2) ; error: bad-count
(do ((i 0 1)) 5 6) ; error: bad-clause
(do ((i 0 (recur 1))) (true 1)) ; error: recur-outside-loop
(loop "3" 2) ; error: bad-count

(dict (a 1) (b 2) (a 3)) ; error: repeated-key
(dict (a 1) b) ; error: bad-clause
(dict (a 1 2)) ; error: bad-clause

(define (f) (define x (+ x 1)) x) ; error: used-before-definition
(define y z) ; error: used-before-definition
(define z 1)

(eval '(+ 1 2)) ; error: unbound-name
(defun f (x) x) ; error: unbound-name
(import "other.sexp") ; error: cannot-import
(import lists) ; error: bad-form

(let ((unused 1)) 2) ; warning: unused-binding
(let* ((a 1) (b 2)) a) ; warning: unused-binding
(define (f) (define helper 1) 2) ; warning: unused-binding
(let ((x 1)) (set! x 2) 3) ; warning: unused-binding
(let ((_x 1)) 2)
(lambda (x) 2)
(define top 1)

(define (f)
  (error "no")
  (log-message "never")) ; warning: unreachable-code
(define (g) (if true 1
  (log-message 2))) ; warning: unreachable-code
(define (h) (while true 1)
  2) ; warning: unreachable-code
(case 1 ((1 2) 3)
  ((2) 4)) ; warning: unreachable-code
(map (log-message "x") '(1 2)) ; warning: item-unused
"""


@pytest.mark.parametrize("text", PROGRAMS.strip().split("\n\n"))
def test_diagnostics_match_the_marks(text: str) -> None:
    """Every mark has its diagnostic and every diagnostic its mark, all in one run."""
    expected = [
        (mark.line, word)
        for mark in marks(text)
        for word in f"{mark.kind}: {mark.text}".replace("error: ", "").replace("warning: ", "").split()
    ]
    actual = [(item.span.line if item.span else 0, item.id) for item in findings(text)]
    assert sorted(actual) == sorted(expected)


def _help(text: str) -> str:
    return " | ".join(f"{item.message}: {item.help or item.label}" for item in findings(text))


HELPS = {
    "(let ((a 1) (b (+ a 1))) b)": "use `let*`",
    "(let ((b (+ a 1)) (a 1)) b)": "use `let*` with `a` first",
    "(let ((f (lambda (n) (f n)))) (f 1))": "use `letrec`",
    "(if (> 2 1) (car '(1)))": "write (if (> 2 1) (car '(1)) null)",
    "(lenght '(1))": "did you mean `length`?",
    "(define (summarise x) x) (sumarise 1)": "did you mean `summarise`?",
    "(setq x 1)": "write (set! name value)",
    '(string->number "1")': "write (parse-number string)",
    '(shell "ls")': "write (system:execute_shell_command command)",
    "(for x (list 1) 2)": "write (for-each (lambda (item) body…) list), or `map` for the list of the values",
    '(string-join (list "a") ",")': "write (join list separator)",
    '(string-suffix? "a" "b")': "write (ends-with? string suffix)",
    "(cond (false 1) (otherwise 2))": "the last clause begins with `else`: (else value…)",
    "(while true do 1)": "the body follows the test: write (while test body…)",
    "(string-append 'text' 1)": 'write a string in double quotes: "text"; a single quote',
    "(list 1, 2)": "separate the items of a list with spaces, without commas",
    "(eval 1)": "there is no `eval`",
    "(define (f a &optional b) (list a b)) (f)": "its parameters are (a &optional b), in line 1",
    "(cons 1)": "write (cons item list)",
    "(define a '(1)) (list a[0])": "write (list-ref list 0)",
    "(define n 1) (cond (> n 0) 'a (else 'b))": "with its test and its values: ((> n 0) 'a)",
    "(define n 1) (cond ((> n 0) 'a) 'b)": "with its test and its values: (else 'b)",
    "(define n 1) (cond (> n 0) (list n) (else 2))": "`>` is a function, which is always true",
    "(if (> 2 1) 1 else 2)": "write (if test then otherwise), without `else`",
    "(let [a 1 b 2] (+ a b))": "write ((a 1) (b 2))",
    "(define f (a b) (+ a b))": "write (define (f a b) body…)",
    "(do (log-message 1) (log-message 2))": "(begin form…) evaluates one after another",
    "import os": 'write (import "file.sexp"…)',
    "(map 'abs '(1))": "write the function without a quote: (map abs list)",
    "(map '(1) abs)": "write the function first: (map function list)",
    '(< "a" "b")': "compare strings with `string<?`",
    "(define r (dict (a 1))) (list r.a)": "write (get-field r 'a)",
    "(get (dict (a 1)) :a)": "write a symbol as 'a",
    "# a comment\n1": "write a comment after `;`",
    "(list #(1 2))": "'(a b) or (list a b), a function as (lambda (x) …)",
    "(map #'abs '(1))": "(map abs list)",
    "(list #\\a)": 'write a string: "a"',
    "(let x 5)": "wrong operands of `let`",
    '(format "%s is {}" "a" 1)': "placeholders are `~a`",
    "(case 'a ('a 1) (else 2))": "write ((a) …)",
    "(case 'a ('(a b) 1) (else 2))": "write ((a b) …)",
    '(dict "a" 1 :b 2)': 'write (dict ("a" 1) (b 2))',
    '(defatom t (params name) (instructions "Hi ${name}"))': "write `{{name}}`",
    '(defatom t (params name) (instructions "Hi {name}"))': "write `{{name}}`",
    "(1 2 3)": "write a list as (list 1 …)",
    "(define x 5) (x)": "write x without brackets",
    "(let (x 1) x)": "write ((name value)), with two brackets",
    "(map and '(1))": "(lambda (x) (and …))",
    "(define-syntax m (syntax-rules () ((_ a b) 1))) (m 1)": "it takes `(m a b)`",
}


@pytest.mark.parametrize("help", sorted(set(_INSTEAD.values())))
def test_suggested_replacements_exist(help: str) -> None:
    """Each form in the help starts with a name of the language."""
    for name in re.findall(r"(?:write|,|or|for strings,) \(([a-z][\w:!?>-]*)", help):
        ids = {item.id for item in findings(f"({name})")}
        assert not ids & {"unbound-name", "unknown-task"}, name


# Programs with one mistake each, which must give exactly one diagnostic.
ONCE = """
(defn add [a b] (+ a b)) (add 1 2)
(setq x 5) (list x)
(dotimes (i 3) (log-message i))
(condition-case err (/ 1 0) (error (log-message err)))
(try (/ 1 0) (except e (log-message e)))
(let [a 1 b 2] (+ a b))
(let (x (y 2)) (list x y))
(define f (x) (+ x 1)) (f 1)
(cond (> 1 0) 'a (else 'b))
(map #'abs '(1 -2))
# text that is no program
(map (λ (x) x) '(1))
(switch 3 (3 'a))
(dict "a" 1 "b" 2)
(case 'a ('a 1) (else 2))
"""


@pytest.mark.parametrize("text", ONCE.strip().splitlines())
def test_one_mistake_is_one_diagnostic(text: str) -> None:
    """A form of another language causes no further diagnostics."""
    assert len(findings(text)) == 1, _help(text)


@pytest.mark.parametrize("name", ["i", "inc", "os", "run", "load", "newline", "!="])
def test_short_name_has_no_accidental_suggestion(name: str) -> None:
    """Two letters in common with a library name are not enough for a suggestion."""
    assert "did you mean" not in _help(f"({name} 1)")


@pytest.mark.parametrize(("text", "help"), HELPS.items())
def test_diagnostic_has_a_fix(text: str, help: str) -> None:
    """The help names the likely fix and quotes the source."""
    assert help in _help(text)


def test_number_of_diagnostics_is_limited() -> None:
    """Ten thousand unbound names give a hundred diagnostics, quickly."""
    diagnostics = findings(" ".join(f"(nobody{number})" for number in range(10_000)))
    assert len(diagnostics) == 100


def test_empty_program_is_an_error() -> None:
    assert [item.id for item in findings(" ; nothing\n")] == ["empty-program"]


def test_long_chains_do_not_recurse() -> None:
    """Ten thousand nested clauses, bindings and definitions expand."""
    clauses = " ".join(f"((= 1 {number}) {number})" for number in range(10_000))
    bindings = " ".join(f"(v{number} v{number - 1})" for number in range(1, 10_000))
    text = f"(cond {clauses}) (let* ((v0 1) {bindings}) v9999) (and {'1 ' * 10_000})"
    assert findings(text) == ()


@pytest.mark.parametrize(
    ("text", "line", "help"),
    [
        ('(+ 1 "a")', '"a"', "string-append"),
        ('(* "3" 2)', '"3"', "without quotes: 3"),
        ('(= 1 "x")', '"x"', "equal?"),
        ('(max 1 "x")', '"x"', ""),
    ],
)
def test_string_operand_of_arithmetic_is_a_warning(text: str, line: str, help: str) -> None:
    """The operation always faults; inside `try` that may be intended, so there is no warning."""
    (diagnostic,) = compile_text(text, "t.sexp").diagnostics
    assert (diagnostic.id, diagnostic.severity) == ("wrong-type", "warning")
    assert diagnostic.span is not None
    assert text[diagnostic.span.column - 1 : diagnostic.span.end_column - 1] == line
    assert help in (diagnostic.help or "")
    assert not compile_text('(string-append "a" 1) (equal? 1 "x") (+ 1 2)', "t.sexp").diagnostics
