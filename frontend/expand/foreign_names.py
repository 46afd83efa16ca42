"""Names from other languages, with their equivalents."""

from __future__ import annotations

_INSTEAD = {
    "call/cc": "there are no continuations; `loop` with `recur`, `try` and effects cover their uses",
    "call-with-current-continuation": "there are no continuations; use `loop` with `recur`, or `try`",
    "def": "write (define name value)",
    "defmacro": "write (define-syntax name (syntax-rules …))",
    "defparameter": "write (define name value)",
    "defun": "write (define (name parameter…) body…)",
    "defvar": "write (define name value)",
    "display": "write (log-message value…)",
    "elif": "write (cond (test value…)… (else value…))",
    "else": "`else` begins the last clause of `cond` and `case`",
    "eval": "there is no `eval`: a program is compiled before it runs; use `apply` or a macro",
    "expect": "write (assert test message)",
    "fn": "write (lambda (parameter…) body…)",
    "foldl": "write (reduce function start list)",
    "hash-map": "write (dict (key value)…)",
    "let-values": "functions give one value; give a list",
    "make-hash": "write (dict (key value)…)",
    "mapcar": "write (map function list)",
    "none": "write null",
    "None": "write null",
    "print": "write (log-message value…)",
    "printf": "write (log-message (format …))",
    "println": "write (log-message value…)",
    "raise": "write (error message value…), or (error fault) for a fault that was caught",
    "rescue": "write (try body… (catch name handler…))",
    "recur": "`recur` goes round the nearest (loop ((name start)…) body…); there is none here",
    "return": "a function gives the value of the last form of its body",
    "setf": "write (set! name value)",
    "setq": "write (set! name value)",
    "t": "write true",
    "then": "write (if test then otherwise)",
    "throw": "write (error message value…)",
    "True": "write true",
    "False": "write false",
    "undefined": "write null",
    "unquote": "`,` is allowed only inside a quasiquotation",
    "unquote-splicing": "`,@` is allowed only inside a quasiquotation",
    "values": "functions give one value; give a list",
    "vector": "write (list item…)",
}


def explain(name: str) -> str | None:
    """The equivalent of a name from another language, as help; None if there is none."""
    return _INSTEAD.get(name)
