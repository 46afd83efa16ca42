"""Seven small programs, in the language and in idiomatic Python.

Both versions compute the same result; their times are compared round by round. A run of llc begins with
an image and includes the translation of hot code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from time import perf_counter
from typing import Any

from measure import Contestant, middle, ratios, take_turns
from place import Place
from report import TIMES, Row, Section, row
from sizes import Sizes

from llc.frontend.compile import compile_text
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.machine.machine import Done
from llc.vm.tiered import Machine

# --- the programs -------------------------------------------------------------------------------

FIB = """
(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(fib {size})
"""


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


TAK = """
(define (tak x y z)
  (if (not (< y x)) z (tak (tak (- x 1) y z) (tak (- y 1) z x) (tak (- z 1) x y))))
(tak {size} (quotient (* 2 {size}) 3) (quotient {size} 3))
"""


def tak(x: int, y: int, z: int) -> int:
    return z if not y < x else tak(tak(x - 1, y, z), tak(y - 1, z, x), tak(z - 1, x, y))


SUM = """
(loop ((i 0) (sum 0))
  (if (< i {size}) (recur (+ i 1) (+ sum i)) sum))
"""


def loop_sum(n: int) -> int:
    i = total = 0
    while i < n:
        total += i
        i += 1
    return total


QUEENS = """
(define (safe? queen distance placed)
  (or (null? placed)
      (let ((other (first placed)))
        (and (not (= other queen))
             (not (= other (+ queen distance)))
             (not (= other (- queen distance)))
             (safe? queen (+ distance 1) (rest placed))))))
(define (place n row placed)
  (if (= row 0)
      1
      (let next ((queen 1) (sum 0))
        (cond ((> queen n) sum)
              ((safe? queen 1 placed) (next (+ queen 1) (+ sum (place n (- row 1) (cons queen placed)))))
              (else (next (+ queen 1) sum))))))
(place {size} {size} nil)
"""


def queens(n: int) -> int:
    def is_safe(queen: int, placed: list[int]) -> bool:
        for distance, other in enumerate(placed, 1):
            if other == queen or other == queen + distance or other == queen - distance:
                return False
        return True

    def place(row: int, placed: list[int]) -> int:
        if row == 0:
            return 1
        total = 0
        for queen in range(1, n + 1):
            if is_safe(queen, placed):
                total += place(row - 1, [queen, *placed])
        return total

    return place(n, [])


WORDS = """
(define (count-words i counts)
  (if (= i {size})
      counts
      (let ((word (string-append "w" (modulo (* i 7) 13))))
        (count-words (+ i 1) (put counts word (+ 1 (get counts word 0)))))))
(get (count-words 0 (dict)) "w5")
"""


def words(n: int) -> int:
    counts: dict[str, int] = {}
    for i in range(n):
        word = f"w{i * 7 % 13}"
        counts[word] = counts.get(word, 0) + 1
    return counts["w5"]


COUNTER = """
(define (make-counter)
  (let ((n 0)) (lambda () (set! n (+ n 1)) n)))
(define counter (make-counter))
(let go ((i 1)) (if (< i {size}) (begin (counter) (go (+ i 1))) (counter)))
"""


def counter(size: int) -> int:
    def make() -> Callable[[], int]:
        n = 0

        def count() -> int:
            nonlocal n
            n += 1
            return n

        return count

    count = make()
    for _ in range(1, size):
        count()
    return count()


PIPE = """
(reduce (lambda (a b) (+ a b)) 0
  (map (lambda (x) (* x x)) (filter (lambda (x) (= (modulo x 3) 0)) (range 0 {size}))))
"""


def pipe(n: int) -> int:
    chosen = filter(lambda x: x % 3 == 0, range(n))
    return reduce(lambda a, b: a + b, map(lambda x: x * x, chosen), 0)  # noqa: C417 - the same program


PROGRAMS: dict[str, tuple[str, Callable[[int], int], int]] = {
    "fib": (FIB, fib, 25),
    "tak": (TAK, lambda n: tak(n, 2 * n // 3, n // 3), 18),
    "sum of a loop": (SUM, loop_sum, 1_000_000),
    "queens": (QUEENS, queens, 8),
    "words in a map": (WORDS, words, 60_000),
    "a counter": (COUNTER, counter, 300_000),
    "filter, map, reduce": (PIPE, pipe, 150_000),
}

# --- measuring ----------------------------------------------------------------------------------


def section(place: Place, sizes: Sizes) -> Section:
    found = Section(
        name="programs",
        title="Programs that only compute",
        about=(
            "Each program is compared with idiomatic Python that has the same result, in one process, "
            "alternately. llc's integers, lists and maps are its own: integers are limited, lists and "
            "maps are immutable, each call and each backward jump is counted, and the program can be "
            "stopped and stored at any tick. The interpreter is measured with a tenth of the work."
        ),
    )
    direct: list[list[float]] = []
    for name, (text, twin, whole) in PROGRAMS.items():
        size = size_of(whole, sizes)
        small = max(20, size // 10) if whole > 100 else size - 4
        image, less = image_of(text, size), image_of(text, small)
        if result(image, "direct") != twin(size) or result(less, "interpreter") != twin(small):
            raise RuntimeError(f"{name}: the ways differ")
        turns = take_turns(
            {
                "llc": _timed(lambda image=image: result(image, "auto")),  # type: ignore[misc]
                "twin": _timed(lambda twin=twin, size=size: twin(size)),  # type: ignore[misc]
                "slow": _timed(lambda less=less: result(less, "interpreter")),  # type: ignore[misc]
                "small": _timed(lambda twin=twin, small=small: twin(small)),  # type: ignore[misc]
            },
            sizes.program_rounds,
        )
        direct.append(ratios(turns["llc"], turns["twin"]))
        found.add(
            row(name, turns["llc"], peer=("Python", turns["twin"]), aim=1.6),
            row(f"{name}, interpreted", turns["slow"], peer=("Python", turns["small"])),
        )
    mean = math.exp(sum(math.log(middle(one)) for one in direct) / len(direct))
    found.add(
        Row(
            what="all seven, geometric mean of the ratios",
            unit=TIMES,
            figure=mean,
            aim=1.25,
            aim_is_absolute=True,
        )
    )
    return found


def size_of(whole: int, sizes: Sizes) -> int:
    """Return the size of the program for this measurement."""
    return max(60, whole // sizes.program_part) if whole > 100 else whole - (sizes.program_part > 1) * 2


def image_of(text: str, size: int) -> Image:
    return emit(compile_text(text.format(size=size), "program.sexp").program)


def result(image: Image, tier: str) -> Any:
    outcome = Machine(image, tier=tier).resume()
    if not isinstance(outcome, Done):
        raise RuntimeError(repr(outcome))
    return outcome.value


def _timed(action: Callable[[], object]) -> Contestant:
    def run() -> float:
        started_at = perf_counter()
        action()
        return perf_counter() - started_at

    return run
