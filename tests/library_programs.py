"""Generated flows that use the library: lists, maps, strings and numbers, mostly well typed."""

from __future__ import annotations

import random
import re

# A grammar of templates. `[a|b]` is one alternative, `$x` a fresh name, and `{N $x:M}` an expression of type
# number where $x is a map. Types: N number, L list of numbers, M map, S string; t is the required type, u a
# random type, ? a condition. Methods below expand the other holes.

KINDS = "NLMS"
Scope = tuple[tuple[str, str], ...]

UNUSUAL = (
    "[0.0|-0.0|1.5|2.0|nan|inf|true|false|(- 0.0 0)|9223372036854775807|-4611686018427387904"
    "|1000000000000000000000]"
)
LITERALS = {
    "N": "[{digit}|{digit}|{digit}|-{digit}]",
    "L": "[nil|(list 1 2 3)|(list 3 1 2)|(range 0 5)|(list)|(list {digit} {digit})|(range 1 {digit})]",
    "M": '[(dict)|(dict ("k" 1) ("z" 2))|(dict ("z" 3))]',
    "S": '[""|"ab"|"b"|"Z"|"é"|"k"|"long long long long long long"]',
}
JOINS = {"N": "[+|-|*|max]", "L": "append", "M": "merge", "S": "string-append"}
KEY = '["k"|"k"|"k"|"z"|"q"|(to-string {variable N})]'
CONDITIONS = (
    *["([<|<=|=|>|>=] {N} {N})"] * 5,
    "(equal? {u} {u})",
    "([null?|not] {L})",
    "(string<? {S} {S})",
    "([and|or] {?} {?})",
    "{u}",
)
# Expressions of any type.
SHAPES = (
    "(if {?} {t} {t})",
    "(let (($x {u})) {t $x:u})",
    "(let (($x {t})) (begin (set! {target $x:t} {t $x:t}) {t $x:t}))",
    "(let* (($x {t}) ($g (lambda ($y) (begin (set! $x {t $x:t $y:t}) [$x|$y]))))"
    " (begin ($g {t}) [$x|($g $x)|{t $x:t}]))",
    "{call}",
    "(try {t} (catch $e {t}))",
    "(try {t} (catch $e (error $e)))",
    "(try {t} (finally {t}))",
    "(loop (($i [0|0|1]) ($a {t}))"
    " (if ([<|<|<=] $i {digit}) (recur (+ $i [1|1|2]) {t $i:N $a:t}) [$a|{t $a:t}]))",
    "(let (($a {t})) (begin (for-each (lambda ($x) (set! $a {t $x:N $a:t})) {L}) $a))",
    "(reduce (lambda ($x $y) {t $x:t $y:N}) {t} {L})",
    "(let (($g (lambda ($y) {t $y:u}))) ({join} ($g {u}) ($g {u})))",
)
CALLS = {
    "N": (
        *["([+|-|*] {N} {N})"] * 4,
        "([/|quotient|modulo|remainder|max|min] {N} {N})",
        "([length|length|first] {L})",
        "(nth {L} {N})",
        "[(string-length {S})|(length (keys {M}))|(abs {N})|(floor {N})]",
        "(reduce [+|-|max|*] {N} {L})",
        "(get {M} {key} {N})",
    ),
    "L": (
        "({map} (lambda ($x) {N $x:N}) {L})",
        "(filter (lambda ($x) {? $x:N}) {L})",
        "(sort {L} (lambda ($x $y) [(< $x $y)|(> $x $y)|{? $x:N $y:N}]))",
        *["(cons {N} {L})"] * 2,
        "(append {L} {L})",
        "([reverse|rest|unique|sort] {L})",
        "([take|drop] {L} {N})",
        "(map [+|max|-] {L} {L})",
        *[
            "(loop (($i 0) ($a [nil|nil|{L}])) (if (< $i {digit})"
            " (recur (+ $i 1) [(cons {N $i:N} $a)|(cons {N $i:N $a:L} $a)|(if {? $i:N} (cons $i $a) $a)"
            "|(let (($q (cons {N $i:N} $a))) $q)]) [$a|(reverse $a)]))"
        ]
        * 2,
        "(let (($l {L})) (loop (($i [0|0|-1|1]) ($a nil)) (if ([<|<|<=] $i (length $l))"
        " (recur (+ 1 $i) (cons (nth $l [$i|$i|$i|(- $i 1)]) $a)) [$a|(reverse $a)])))",
        "(list {N} {N})",
    ),
    "M": (
        *["(put {M} {key} {N})"] * 4,
        "(put {M} {key} {M})",
        "(merge {M} {M})",
        "(remove {M} {key})",
        "(loop (($i 0) ($a {M})) (if (< $i {digit}) (recur (+ $i 1) (put $a {key $i:N} {N $i:N $a:M})) $a))",
    ),
    "S": (
        "(to-string {u})",
        "(string-append {S} {S})",
        "([upper|trim] {S})",
        '(join (map to-string {L}) ",")',
    ),
}
BODIES = (
    "{t}",
    "(if (<= n 0) {t} {again})",
    "(if ([<|<=] n [0|1|2]) {t} ({join} {again} {again}))",
    "(if (<= n 0) {t} ({join} {t} {again}))",
    "(if (< n 1) {t} (let (($r {again})) {t $r:t}))",
    "(if (<= n 0) {t} (try {again} (catch $e {t})))",
    "(begin (set! g {M}) {t})",
    '(if (<= n 0) (error "deep" n) {again})',
    "(let (($h (lambda ($m) {t $m:N}))) ({join} ($h n) ($h {N})))",
)
ODD_NUMBERS = ("(define inf (* 1e308 10))", "(define nan (- inf inf))")

CHOICE = re.compile(r"\[([^][]*)\]")
NAME = re.compile(r"\$\w+")
HOLE = re.compile(r"\{([^ }]+)([^}]*)\}")


class LibraryGenerator:
    """Generator of a program with a few functions that call each other and themselves, and three results."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0
        # Probabilities of a value of another type, an unusual number, and an effect.
        self.wrong_type = self.random.choice([0, 0, 0.01, 0.04])
        self.unusual = self.random.choice([0, 0.05, 0.3])
        self.effects = self.random.choice([0, 0.05, 0.15])
        self.mapping = "parallel-map" if self.random.random() < 0.1 else "map"
        self.functions: dict[str, tuple[str, Scope]] = {}
        for number in range(self.random.randint(1, 5)):
            kinds = self.random.choices("NNLLMS", k=self.random.randint(0, 2))
            parameters = (("n", "N"), *zip("ab", kinds, strict=False))
            self.functions[f"f{number}"] = self.random.choice("NNNLLMS"), parameters

    def program(self) -> str:
        scope = (("g", "M"),)
        parts = [self.expression(self.random.choice(KINDS), scope, 4) for _ in range(3)]
        if self.random.random() < 0.5:
            parts = [f'(try {part} (catch e (list (get e "message") (get e "span"))))' for part in parts]
        first = f"(define g {self.variable('M', ())})"
        functions = map(self.function, self.functions)
        return "\n".join([*ODD_NUMBERS, first, *functions, f"(list {' '.join(parts)} g)"])

    def function(self, name: str) -> str:
        """The first parameter counts down, so that most functions end."""
        kind, parameters = self.functions[name]
        self.own = name
        body = self.expand(self.random.choice(BODIES), kind, (*parameters, ("g", "M")), 3)
        return f"(define ({' '.join([name, *dict(parameters)])}) {body})"

    def expression(self, kind: str, scope: Scope, depth: int) -> str:
        if kind == "?":
            return self.expand(self.random.choice(CONDITIONS), "N", scope, depth) if depth > 0 else "true"
        if self.random.random() < self.wrong_type:
            kind = self.random.choice(KINDS)
        if depth <= 0:
            return self.variable(kind, scope)
        if self.random.random() < self.effects:
            return self.expand("(begin [(now)|(log-message 1)] {t})", kind, scope, depth)
        is_shape = self.random.random() < 0.6
        return self.expand(self.random.choice(SHAPES if is_shape else CALLS[kind]), kind, scope, depth)

    def variable(self, kind: str, scope: Scope) -> str:
        names = [name for name, its in scope if its == kind]
        if names and self.random.random() < 0.75:
            return self.random.choice(names)
        is_odd = kind == "N" and self.random.random() < self.unusual
        return self.expand(UNUSUAL if is_odd else LITERALS[kind], kind, scope, 0)

    def expand(self, template: str, kind: str, scope: Scope, depth: int) -> str:
        """Expand a template to an expression of type `kind`; nested expressions have a smaller depth."""
        kinds = dict.fromkeys("?" + KINDS, "") | {"t": kind, "u": self.random.choice(KINDS)}
        self.count += 1
        number = self.count

        def hole(matched: re.Match[str]) -> str:
            hole_name, rest = matched[1], matched[2].split()
            inner = scope
            for entry in rest:
                name, _, its = entry.partition(":")
                inner = (*inner, (name, kinds.get(its) or its))
            if hole_name in kinds:
                return self.expression(kinds[hole_name] or hole_name, inner, depth - 1)
            match hole_name:
                case "digit":
                    return str(self.random.randint(0, 8))
                case "key":
                    return self.expand(KEY, kind, inner, 0)
                case "variable":
                    return self.variable("N", scope)
                case "target":
                    return self.random.choice([name for name, its in inner if its == kind])
                case "join":
                    return self.expand(JOINS[kind], kind, scope, 0)
                case "map":
                    return self.mapping
                case "again":
                    smaller = f"(- n {self.random.randint(1, 2)})"
                    return self.call(self.own, smaller, scope, min(depth - 1, 1))
                case _:
                    fitting = [name for name, (its, _) in self.functions.items() if its == kind]
                    if not fitting:
                        return self.variable(kind, scope)
                    return self.call(
                        self.random.choice(fitting), self.expression("N", scope, depth - 1), scope, depth - 1
                    )

        text = CHOICE.sub(lambda matched: self.random.choice(matched[1].split("|")), template)
        text = NAME.sub(lambda matched: f"{matched[0][1:]}{number}", text)
        return HOLE.sub(hole, text)

    def call(self, name: str, first: str, scope: Scope, depth: int) -> str:
        parameters = self.functions[name][1]
        arguments = " ".join([first, *(self.expression(kind, scope, depth) for _, kind in parameters[1:])])
        return f"(apply {name} (list {arguments}))" if self.random.random() < 0.3 else f"({name} {arguments})"
