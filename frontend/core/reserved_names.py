"""Names with a fixed meaning in the language: forms, words inside forms, `*loop-config*`.

They are listed here, below the handlers of the forms, so that declarations of tools and tasks can be
checked without the expander. `core/forms.py` refuses to register a form that is not listed.
"""

from __future__ import annotations

FORM_NAMES = frozenset(
    {
        "and", "ask", "assert", "begin", "bind", "call", "case", "cond", "defatom", "define", "define-syntax",
        "dict", "director-evaluator-loop", "do", "error", "for-each", "if", "import", "iterative-loop",
        "lambda", "let", "let*", "letrec", "letrec*", "loop", "map", "or", "parallel-map", "progn",
        "quasiquote", "quote", "recur", "run-loop", "set!", "syntax-rules", "try", "unless", "when", "while",
    }
)  # fmt: skip
# The variable of the whole program that loops set.
CONFIG = "*loop-config*"
# Whether a loop form runs around the code; only `stdlib/loops.sexp` can name it.
AROUND = "loop:around"
# Words that mean something inside a form only; if one were bound, the form would be misread.
WORDS = frozenset({"catch", "finally", "unquote", "unquote-splicing", "&optional", "&rest"})
