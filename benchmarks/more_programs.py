"""Second set of twenty programs, of other kinds than the first: twelve written by hand, eight generated.

The programs were frozen after the first optimisations for general programs and before the next ones: a
program is not rewritten to be faster, and no optimisation may be written for one program. Each
generated program is written in both languages from one random tree with a fixed seed.
"""

# ruff: noqa: E501 - the programs keep the lines that they were frozen with

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

Program = tuple[str, Callable[[int], object], int]

# --- written by hand ----------------------------------------------------------------------------

SIEVE = """
(define (sieve candidates primes)
  (if (null? candidates) (reverse primes)
      (let ((p (first candidates)))
        (if (> (* p p) {size})
            (append (reverse primes) candidates)
            (sieve (filter (lambda (n) (not (= 0 (modulo n p)))) (rest candidates)) (cons p primes))))))
(define primes (sieve (range 2 {size}) nil))
(+ (length primes) (last primes))
"""


def sieve(size: int) -> int:
    candidates, primes = list(range(2, size)), []
    while candidates:
        p = candidates[0]
        if p * p > size:
            primes += candidates
            break
        primes.append(p)
        candidates = [n for n in candidates[1:] if n % p != 0]
    return len(primes) + primes[-1]


CIPHER = """
(define letters (split "abcdefghijklmnopqrstuvwxyz" ""))
(define (shifted letter by)
  (let ((at (index-of letter letters)))
    (if (null? at) letter (nth (modulo (+ at by) 26) letters))))
(define (encode text by) (join (map (lambda (letter) (shifted letter by)) (split text "")) ""))
(define plain (join (map (lambda (i) (nth (modulo i 5) '("attack" "at" "dawn," "or" "later"))) (range 0 {size})) " "))
(define secret (encode plain 3))
(if (equal? (encode secret 23) plain) (substring secret 0 24) "wrong")
"""


def cipher(size: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"

    def encode(text: str, by: int) -> str:
        found = []
        for letter in text:
            at = letters.find(letter)
            found.append(letter if at < 0 else letters[(at + by) % 26])
        return "".join(found)

    plain = " ".join(("attack", "at", "dawn,", "or", "later")[i % 5] for i in range(size))
    secret = encode(plain, 3)
    return secret[:24] if encode(secret, 23) == plain else "wrong"


RUNS = """
(define bits (map (lambda (i) (if (< (modulo (* i i) 11) 5) "a" "b")) (range 0 {size})))
(define (pack left letter count done)
  (cond ((null? left) (reverse (cons (list letter count) done)))
        ((equal? (first left) letter) (pack (rest left) letter (+ count 1) done))
        (else (pack (rest left) (first left) 1 (cons (list letter count) done)))))
(define (unpack runs)
  (apply append (map (lambda (run) (map (lambda (i) (first run)) (range 0 (second run)))) runs)))
(define packed (pack (rest bits) (first bits) 1 nil))
(if (equal? (unpack packed) bits)
    (reduce (lambda (sum run) (+ (* 3 (modulo sum 1000003)) (second run))) 0 packed)
    "wrong")
"""


def runs(size: int) -> object:
    bits = ["a" if i * i % 11 < 5 else "b" for i in range(size)]
    packed: list[tuple[str, int]] = []
    for letter in bits:
        if packed and packed[-1][0] == letter:
            packed[-1] = letter, packed[-1][1] + 1
        else:
            packed.append((letter, 1))
    if [letter for letter, count in packed for _ in range(count)] != bits:
        return "wrong"
    total = 0
    for _, count in packed:
        total = 3 * (total % 1000003) + count
    return total


LIFE = """
(define n 16)
(define start
  (map (lambda (y) (map (lambda (x) (if (= 0 (modulo (+ (* x 3) (* y y)) 4)) 1 0)) (range 0 n))) (range 0 n)))
(define (cell board x y) (nth (modulo x n) (nth (modulo y n) board)))
(define (around board x y)
  (+ (cell board (- x 1) (- y 1)) (cell board x (- y 1)) (cell board (+ x 1) (- y 1))
     (cell board (- x 1) y) (cell board (+ x 1) y)
     (cell board (- x 1) (+ y 1)) (cell board x (+ y 1)) (cell board (+ x 1) (+ y 1))))
(define (next-cell board x y)
  (let ((count (around board x y)))
    (if (= 1 (cell board x y)) (if (or (= count 2) (= count 3)) 1 0) (if (= count 3) 1 0))))
(define (generation board)
  (map (lambda (y) (map (lambda (x) (next-cell board x y)) (range 0 n))) (range 0 n)))
(define (live board) (reduce (lambda (sum row) (+ sum (reduce + 0 row))) 0 board))
(let next ((i 0) (board start) (sum 0))
  (if (= i {size}) sum (next (+ i 1) (generation board) (+ (* 2 (modulo sum 10007)) (live board)))))
"""


def life(size: int) -> int:
    n = 16
    board = [[1 if (x * 3 + y * y) % 4 == 0 else 0 for x in range(n)] for y in range(n)]
    steps = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1) if dx or dy]
    total = 0
    for _ in range(size):
        live = sum(map(sum, board))
        total = 2 * (total % 10007) + live
        after = []
        for y in range(n):
            row = []
            for x in range(n):
                count = sum(board[(y + dy) % n][(x + dx) % n] for dx, dy in steps)
                row.append(1 if count == 3 or (count == 2 and board[y][x]) else 0)
            after.append(row)
        board = after
    return total


DISTANCE = """
(define (letters i) (map (lambda (k) (modulo (* k (+ i 3)) 7)) (range 0 {size})))
(define (next-row row a b at)
  (let go ((row row) (b b) (left at) (done (list at)))
    (if (null? b) (reverse done)
        (let ((here (min (+ 1 left) (+ 1 (second row)) (+ (first row) (if (= a (first b)) 0 1)))))
          (go (rest row) (rest b) here (cons here done))))))
(define (distance a b)
  (let go ((a a) (row (range 0 (+ 1 (length b)))) (at 1))
    (if (null? a) (last row) (go (rest a) (next-row row (first a) b at) (+ at 1)))))
(+ (distance (letters 1) (letters 2)) (* 100 (distance (letters 3) (letters 5))))
"""


def distance(size: int) -> int:
    def letters(i: int) -> list[int]:
        return [k * (i + 3) % 7 for k in range(size)]

    def between(a: list[int], b: list[int]) -> int:
        row = list(range(len(b) + 1))
        for at, one in enumerate(a, 1):
            after = [at]
            for k, other in enumerate(b):
                after.append(min(after[k] + 1, row[k + 1] + 1, row[k] + (one != other)))
            row = after
        return row[-1]

    return between(letters(1), letters(2)) + 100 * between(letters(3), letters(5))


ORDER = """
(define n {size})
(define (name i) (string-append "t" i))
(define needs
  (reduce (lambda (needs i)
            (put needs (name i) (map name (unique (filter (lambda (k) (< k i)) (list (quotient i 2) (modulo (* i 7) (+ i 1))))))))
          (dict) (range 0 n)))
(define (visit task state)
  (if (has-key? (get state "seen") task) state
      (let ((after (reduce (lambda (state other) (visit other state))
                           (put state "seen" (put (get state "seen") task true))
                           (get needs task))))
        (put after "order" (cons task (get after "order"))))))
(define done (reduce (lambda (state i) (visit (name (- n i 1)) state)) (dict (seen (dict)) (order nil)) (range 0 n)))
(string-append (length (get done "order")) " " (join (take 5 (get done "order")) " "))
"""


def order(size: int) -> str:
    needs = {
        f"t{i}": [f"t{k}" for k in dict.fromkeys((i // 2, i * 7 % (i + 1))) if k < i] for i in range(size)
    }
    seen: set[str] = set()
    done: list[str] = []

    def visit(task: str) -> None:
        if task not in seen:
            seen.add(task)
            for other in needs[task]:
                visit(other)
            done.append(task)

    for i in range(size):
        visit(f"t{size - i - 1}")
    return f"{len(done)} {' '.join(done[:-6:-1])}"


FORMS = """
(define (checked text)
  (let ((number (parse-number text)))
    (cond ((null? number) (error 'no-number text))
          ((< number 0) (error 'negative text))
          (else number))))
(define (field i) (case (modulo i 7) ((0) "x") ((3) "-4") (else (to-string i))))
(define (count-fault faults fault) (update faults (get fault "kind") (lambda (n) (+ 1 (or n 0)))))
(define (add state text)
  (try (put state "sum" (+ (get state "sum") (checked text)))
    (catch fault (put state "faults" (count-fault (get state "faults") fault)))))
(define end (reduce (lambda (state i) (add state (field i))) (dict (sum 0) (faults (dict))) (range 0 {size})))
(string-append (get end "sum") " " (get-field end "faults.no-number") " " (get-field end "faults.negative"))
"""


def forms(size: int) -> str:
    class NoNumber(Exception):
        pass

    class Negative(Exception):
        pass

    def checked(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise NoNumber(text) from None
        if number < 0:
            raise Negative(text)
        return number

    total = words = negative = 0
    for i in range(size):
        try:
            total += checked({0: "x", 3: "-4"}.get(i % 7, str(i)))
        except NoNumber:
            words += 1
        except Negative:
            negative += 1
    return f"{total} {words} {negative}"


STOCK = """
(define kinds '("bolt" "nut" "washer" "screw"))
(define (event i)
  (dict (kind (if (= 0 (modulo i 3)) "out" "in")) (item (nth (modulo (* i 7) 4) kinds)) (count (+ 1 (modulo i 5)))))
(define (changed item event)
  (let ((count (get item "count" 0)))
    (if (equal? (get event "kind") "in")
        (merge item (dict (count (+ count (get event "count")))))
        (if (< count (get event "count"))
            (put item "missed" (+ 1 (get item "missed" 0)))
            (merge item (dict (count (- count (get event "count"))) (sold (+ (get event "count") (get item "sold" 0)))))))))
(define (fold stock event) (update stock (get event "item") (lambda (item) (changed (or item (dict)) event))))
(define stock (reduce fold (dict) (map event (range 0 {size}))))
(join (map (lambda (kind) (let ((item (get stock kind)))
             (string-append kind " " (get item "count") " " (get item "sold" 0) " " (get item "missed" 0)))) kinds) ", ")
"""


def stock(size: int) -> str:
    kinds = ("bolt", "nut", "washer", "screw")
    events = [
        {"kind": "out" if i % 3 == 0 else "in", "item": kinds[i * 7 % 4], "count": 1 + i % 5}
        for i in range(size)
    ]
    found: dict[str, dict[str, int]] = {}
    for event in events:
        item = found.setdefault(str(event["item"]), {"count": 0, "sold": 0, "missed": 0})
        count = int(event["count"])
        if event["kind"] == "in":
            item["count"] += count
        elif item["count"] < count:
            item["missed"] += 1
        else:
            item["count"] -= count
            item["sold"] += count
    return ", ".join(f"{k} {found[k]['count']} {found[k]['sold']} {found[k]['missed']}" for k in kinds)


POSTFIX = """
(define (step stack word)
  (case word
    (("+") (cons (+ (second stack) (first stack)) (cddr stack)))
    (("-") (cons (- (second stack) (first stack)) (cddr stack)))
    (("*") (cons (modulo (* (second stack) (first stack)) 1009) (cddr stack)))
    (("dup") (cons (first stack) stack))
    (("swap") (cons (second stack) (cons (first stack) (cddr stack))))
    (else (cons (parse-number word) stack))))
(define (run text) (first (reduce step nil (split text " "))))
(define code "3 dup * swap 4 + - 2 * 7 swap - dup + ")
(let next ((i 0) (sum 0))
  (if (= i {size}) sum
      (next (+ i 1) (+ sum (run (string-append i " 5 " code "+"))))))
"""


def postfix(size: int) -> int:
    def run(text: str) -> int:
        stack: list[int] = []
        for word in text.split(" "):
            if word == "+":
                b, a = stack.pop(), stack.pop()
                stack.append(a + b)
            elif word == "-":
                b, a = stack.pop(), stack.pop()
                stack.append(a - b)
            elif word == "*":
                b, a = stack.pop(), stack.pop()
                stack.append(a * b % 1009)
            elif word == "dup":
                stack.append(stack[-1])
            elif word == "swap":
                stack[-1], stack[-2] = stack[-2], stack[-1]
            else:
                stack.append(int(word))
        return stack[-1]

    code = "3 dup * swap 4 + - 2 * 7 swap - dup + "
    return sum(run(f"{i} 5 {code}+") for i in range(size))


ARRANGED = """
(define (without item items) (filter (lambda (other) (not (equal? other item))) items))
(define (arrangements items)
  (if (null? items) (list nil)
      (apply append
        (map (lambda (item) (map (lambda (more) (cons item more)) (arrangements (without item items)))) items))))
(define (worth items)
  (let go ((items items) (at 1) (sum 0))
    (if (null? items) sum (go (rest items) (+ at 1) (+ sum (* at (first items)))))))
(let ((all (arrangements (range 1 (+ 1 {size})))))
  (+ (* 1000 (length all)) (apply max (map worth all)) (length (filter (lambda (one) (even? (worth one))) all))))
"""


def arranged(size: int) -> int:
    def arrangements(items: list[int]) -> list[list[int]]:
        if not items:
            return [[]]
        return [
            [item, *more]
            for item in items
            for more in arrangements([other for other in items if other != item])
        ]

    def worth(items: list[int]) -> int:
        return sum(at * item for at, item in enumerate(items, 1))

    every = arrangements(list(range(1, size + 1)))
    return 1000 * len(every) + max(map(worth, every)) + sum(worth(one) % 2 == 0 for one in every)


ESCAPE = """
(define (steps x y)
  (let go ((a 0.0) (b 0.0) (i 0))
    (if (or (= i 60) (> (+ (* a a) (* b b)) 4.0)) i
        (go (+ x (- (* a a) (* b b))) (+ y (* 2.0 a b)) (+ i 1)))))
(define n {size})
(define (row j) (reduce (lambda (sum i) (+ sum (steps (- (/ (* 3.0 i) n) 2.0) (- (/ (* 2.0 j) n) 1.0)))) 0 (range 0 n)))
(reduce + 0 (map row (range 0 n)))
"""


def escape(size: int) -> int:
    def steps(x: float, y: float) -> int:
        a = b = 0.0
        i = 0
        while i != 60 and a * a + b * b <= 4.0:
            a, b, i = x + (a * a - b * b), y + 2.0 * a * b, i + 1
        return i

    return sum(
        sum(steps(3.0 * i / size - 2.0, 2.0 * j / size - 1.0) for i in range(size)) for j in range(size)
    )


SEARCH = """
(define items (map (lambda (i) (* 3 i)) (range 0 {size})))
(define (find-at wanted low high)
  (if (>= low high) -1
      (let* ((middle (quotient (+ low high) 2)) (item (nth middle items)))
        (cond ((= item wanted) middle)
              ((< item wanted) (find-at wanted (+ middle 1) high))
              (else (find-at wanted low middle))))))
(reduce (lambda (found wanted)
          (let ((at (find-at wanted 0 (length items))))
            (if (< at 0) (list (first found) (+ 1 (second found))) (list (+ at (first found)) (second found)))))
        (list 0 0) (range 0 {size}))
"""


def search(size: int) -> list[int]:
    items = [3 * i for i in range(size)]

    def find_at(wanted: int) -> int:
        low, high = 0, len(items)
        while low < high:
            middle = (low + high) // 2
            if items[middle] == wanted:
                return middle
            if items[middle] < wanted:
                low = middle + 1
            else:
                high = middle
        return -1

    total = missed = 0
    for wanted in range(size):
        at = find_at(wanted)
        if at < 0:
            missed += 1
        else:
            total += at
    return [total, missed]


# --- generated ----------------------------------------------------------------------------------

# A random expression, in the language and in Python.
_Both = tuple[str, str]


class _Writer:
    """Generator of random integer expressions over named variables; a final `modulo` keeps values small."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def below(self, count: int) -> int:
        # Only `random()` gives the same numbers in every version of Python.
        return int(self.random.random() * count)

    def expression(self, names: list[_Both], depth: int) -> _Both:
        if depth == 0 or self.below(6) == 0:
            if self.below(3) == 0:
                number = str(1 + self.below(40))
                return number, number
            return names[self.below(len(names))]
        left, right = self.expression(names, depth - 1), self.expression(names, depth - 1)
        match self.below(6):
            case 0 | 1:
                return f"(+ {left[0]} {right[0]})", f"({left[1]} + {right[1]})"
            case 2:
                return f"(- {left[0]} {right[0]})", f"({left[1]} - {right[1]})"
            case 3:
                return f"(modulo (* {left[0]} {right[0]}) 9973)", f"({left[1]} * {right[1]} % 9973)"
            case 4:
                return f"(max {left[0]} {right[0]})", f"max({left[1]}, {right[1]})"
            case _:
                test = self.test(names)
                return f"(if {test[0]} {left[0]} {right[0]})", f"({left[1]} if {test[1]} else {right[1]})"

    def test(self, names: list[_Both]) -> _Both:
        left, right = self.expression(names, 1), self.expression(names, 1)
        sign = ("<", ">", "<=", ">=")[self.below(4)]
        return f"({sign} {left[0]} {right[0]})", f"{left[1]} {sign} {right[1]}"


def _twin(text: str) -> Callable[[int], object]:
    found: dict[str, Any] = {}
    exec(text, found)
    return found["twin"]  # type: ignore[no-any-return]


def _loop(seed: int, size: int) -> Program:
    """Generate a loop over several variables that all change in each iteration."""
    writer = _Writer(seed)
    own = ["a", "b", "c"]
    names = [(one, one) for one in [*own, "i"]]
    news = [writer.expression(names, 4) for _ in own]
    lisp = " ".join(f"(modulo {new} 10007)" for new, _ in news)
    python = ", ".join(f"{new} % 10007" for _, new in news)
    return (
        f"(let go ((i 0) (a 1) (b 2) (c 3)) (if (= i {{size}}) (+ a b c) (go (+ i 1) {lisp})))",
        _twin(
            f"def twin(size):\n a, b, c = 1, 2, 3\n for i in range(size):\n  a, b, c = {python}\n return a + b + c\n"
        ),
        size,
    )


def _calls(seed: int, size: int) -> Program:
    """Generate functions that call earlier functions, called from a loop."""
    writer = _Writer(seed)
    lisp, python = "", ""
    for number in range(6):
        names = [("x", "x"), ("y", "y")]
        for _ in range(2 if number else 0):
            other = writer.below(number)
            given = [writer.expression(names[:2], 1) for _ in range(2)]
            names.append(
                (f"(f{other} {given[0][0]} {given[1][0]})", f"f{other}({given[0][1]}, {given[1][1]})")
            )
        body = writer.expression(names, 3)
        lisp += f"(define (f{number} x y) (modulo {body[0]} 10007))\n"
        python += f"def f{number}(x, y):\n return {body[1]} % 10007\n"
    lisp += "(reduce (lambda (sum i) (modulo (+ sum (f5 sum i) (f4 i sum)) 10007)) 0 (range 0 {size}))"
    python += (
        "def twin(size):\n total = 0\n for i in range(size):\n"
        "  total = (total + f5(total, i) + f4(i, total)) % 10007\n return total\n"
    )
    return lisp, _twin(python), size


def _records(seed: int, size: int) -> Program:
    """Generate maps that are created, changed, selected and summed."""
    writer = _Writer(seed)
    fields = ["p", "q", "r", "s"]
    of_i = [writer.expression([("i", "i")], 2) for _ in fields]
    of_one = [(f'(get one "{field}")', f'one["{field}"]') for field in fields]
    changed, new = fields[writer.below(4)], writer.expression(of_one, 2)
    test, worth = writer.test(of_one), writer.expression(of_one, 3)
    made = " ".join(f"({field} {text})" for field, (text, _) in zip(fields, of_i, strict=True))
    twin = ", ".join(f'"{field}": {text}' for field, (_, text) in zip(fields, of_i, strict=True))
    return (
        f"(define made (map (lambda (i) (dict {made})) (range 0 {{size}})))\n"
        f'(define changed (map (lambda (one) (put one "{changed}" {new[0]})) made))\n'
        f"(define chosen (filter (lambda (one) {test[0]}) changed))\n"
        f"(reduce (lambda (sum one) (modulo (+ sum {worth[0]}) 10007)) (length chosen) changed)",
        _twin(
            f"def twin(size):\n made = [{{{twin}}} for i in range(size)]\n"
            f' changed = [{{**one, "{changed}": {new[1]}}} for one in made]\n'
            f" total = len([one for one in changed if {test[1]}])\n"
            f" for one in changed:\n  total = (total + {worth[1]}) % 10007\n return total\n"
        ),
        size,
    )


def _deep(seed: int, size: int) -> Program:
    """Generate a function that calls itself twice on smaller arguments and decides by the results."""
    writer = _Writer(seed)
    names = [(one, one) for one in ("n", "x", "left", "right")]
    given = [writer.expression(names[:2], 2) for _ in range(2)]
    body, end = writer.expression(names, 4), writer.expression(names[:2], 2)
    return (
        f"(define (walk n x)\n  (if (< n 2) (modulo {end[0]} 997)\n"
        f"      (let* ((left (walk (- n 1) (modulo {given[0][0]} 97))) (right (walk (- n 2) (modulo {given[1][0]} 89))))\n"
        f"        (modulo {body[0]} 10007))))\n(walk {{size}} 1)",
        _twin(
            f"def twin(size):\n return walk(size, 1)\n"
            f"def walk(n, x):\n if n < 2:\n  return {end[1]} % 997\n"
            f" left = walk(n - 1, {given[0][1]} % 97)\n right = walk(n - 2, {given[1][1]} % 89)\n"
            f" return {body[1]} % 10007\n"
        ),
        size,
    )


FROZEN: dict[str, Program] = {
    "a sieve": (SIEVE, sieve, 20_000),
    "a cipher": (CIPHER, cipher, 1_500),
    "runs of letters": (RUNS, runs, 30_000),
    "the game of life": (LIFE, life, 20),
    "edit distance": (DISTANCE, distance, 120),
    "tasks in order": (ORDER, order, 2_000),
    "forms with mistakes": (FORMS, forms, 10_000),
    "events of a stock": (STOCK, stock, 5_000),
    "postfix": (POSTFIX, postfix, 1_500),
    "arrangements": (ARRANGED, arranged, 7),
    "escape times": (ESCAPE, escape, 50),
    "binary search": (SEARCH, search, 4_000),
    "generated: a loop": _loop(11, 10_000),
    "generated: a second loop": _loop(12, 10_000),
    "generated: calls": _calls(21, 3_000),
    "generated: more calls": _calls(22, 3_000),
    "generated: records": _records(31, 8_000),
    "generated: more records": _records(32, 8_000),
    "generated: recursion": _deep(41, 19),
    "generated: more recursion": _deep(42, 19),
}
