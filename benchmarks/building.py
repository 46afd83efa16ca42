"""Construction of maps and lists with n items by each library function: time for each item, by size."""

from __future__ import annotations

from time import process_time

from measure import middle
from place import Place
from programs import image_of, result
from report import Section, row
from sizes import Sizes

# How often the smallest sizes run before the run that counts, so that its functions are translated.
_WARMING = 4


def _reduced(step: str, start: str = "(dict)", end: str = "(length (keys made))") -> str:
    return f"(let ((made (reduce (lambda (made i) {step}) {start} (range 0 {{size}})))) {end})"


_KEYS = "(map (lambda (i) (list (to-string i) i)) (range 0 {size}))"
_LENGTH = "(length made)"
BUILDERS = {
    "put": _reduced("(put made (to-string i) i)"),
    "put, while every tenth map is kept": _reduced(
        "(let ((next (put (first made) (to-string i) i)))"
        " (list next (if (= 0 (modulo i 10)) (cons next (second made)) (second made))))",
        "(list (dict) nil)",
        "(length (keys (first made)))",
    ),
    "put of the same keys": _reduced("(put made (to-string (modulo i 1000)) (+ 1 (get made 'k 0)))"),
    "put in a function that recurs": (
        "(define (build i made) (if (= i {size}) made (build (+ i 1) (put made (to-string i) i))))"
        "(length (keys (build 0 (dict))))"
    ),
    "put in a variable": (
        "(define made (dict))"
        "(for-each (lambda (i) (set! made (put made (to-string i) i))) (range 0 {size}))"
        "(length (keys made))"
    ),
    "update": _reduced("(update made (to-string i) (lambda (old) i))"),
    "merge of one": _reduced("(merge made (dict ((to-string i) i)))"),
    "merge of two": _reduced("(merge made (dict ((to-string i) i)) (dict (a i)))"),
    "remove": _reduced("(remove made (to-string i))", f"(from-entries {_KEYS})"),
    "remove and put": _reduced("(remove (put made (to-string i) i) (to-string (- i 100)))"),
    "from-entries": f"(length (keys (from-entries {_KEYS})))",
    "append of one": _reduced("(append made (list i))", "()", _LENGTH),
    "append of a pair": _reduced("(append made (cons i nil))", "()", _LENGTH),
    "append to one": _reduced("(append (list i) made)", "()", _LENGTH),
    "append and take": _reduced("(take (+ i 1) (append made (list i i)))", "()", _LENGTH),
    "apply append": "(length (apply append (map list (range 0 {size}))))",
    "cons": _reduced("(cons i made)", "()", _LENGTH),
    "drop": _reduced("(drop 1 made)", "(range 0 {size})", _LENGTH),
    "rest": _reduced("(rest made)", "(range 0 {size})", _LENGTH),
    "fold-right": "(length (fold-right cons nil (range 0 {size})))",
    "map": "(length (map (lambda (i) (* i 2)) (range 0 {size})))",
    "map of two lists": "(length (map + (range 0 {size}) (range 0 {size})))",
    "filter": "(length (filter even? (range 0 {size})))",
    "sort": "(length (sort (map (lambda (i) (modulo (* i 7919) 10007)) (range 0 {size})) <))",
    "sorted, unique, reverse": "(length (reverse (unique (sorted (range 0 {size})))))",
    "zip, flatten": "(length (flatten (zip (range 0 {size}) (range 0 {size}))))",
    "split, join": '(length (split (join (range 0 {size}) ",") ","))',
}


def section(place: Place, sizes: Sizes) -> Section:
    found = Section(
        name="building",
        title="Building maps and lists",
        about=(
            "Processor time for each item of a map or list of n items, built with a function of the "
            "library, compared with the smallest n. Larger data cause misses of the processor's caches."
        ),
    )
    for name, text in BUILDERS.items():
        least: list[float] = []
        for size in sizes.built_items:
            seconds = [per_item(text, size)]
            if least:
                peer = f"n = {sizes.built_items[0]:,}", least
                found.add(row(f"{name}, n = {size:,}", seconds, peer=peer))
            else:
                least = seconds
    return found


def per_item(text: str, size: int) -> float:
    """Return the seconds for one item in a warm run."""
    image = image_of(text, size)
    found = []
    for _ in range(_WARMING + 3 if size <= 10_000 else 1):
        started_at = process_time()
        result(image, "auto")
        found.append((process_time() - started_at) / size)
    return middle(found[-3:])
