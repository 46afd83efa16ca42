"""Twenty programs of different kinds, in the language and in idiomatic Python.

The programs were chosen before any work on their speed and are frozen: a program is not rewritten to be
faster, and no optimisation may be written for one program. Each program has a size and returns a number
or a string.
"""

# ruff: noqa: E501 - the programs keep the lines that they were frozen with

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable
from functools import cmp_to_key, reduce
from typing import Any

Program = tuple[str, Callable[[int], object], int]

# --- data ---------------------------------------------------------------------------------------

TREE_WALK = """
(define (build depth)
  (if (= depth 0) (dict (value 1) (children nil))
      (dict (value depth) (children (list (build (- depth 1)) (build (- depth 1)))))))
(define (total node)
  (reduce (lambda (sum child) (+ sum (total child))) (get node "value") (get node "children")))
(total (build {size}))
"""


def tree_walk(size: int) -> int:
    def build(depth: int) -> dict[str, Any]:
        if depth == 0:
            return {"value": 1, "children": []}
        return {"value": depth, "children": [build(depth - 1), build(depth - 1)]}

    def total(node: dict[str, Any]) -> int:
        return node["value"] + sum(total(child) for child in node["children"])

    return total(build(size))


INDEX = """
(define built
  (reduce (lambda (made i) (put made (string-append "k" i) (* i i))) (dict) (range 0 {size})))
(reduce (lambda (sum key) (+ sum (get built key))) 0 (keys built))
"""


def index(size: int) -> int:
    built = {f"k{i}": i * i for i in range(size)}
    return sum(built[key] for key in built)


ROWS = """
(define rows (map (lambda (i) (list i (modulo (* i 7) 10) (modulo (* i 31) 100))) (range 0 {size})))
(define (add groups row)
  (let ((key (to-string (second row))))
    (put groups key (+ (third row) (get groups key 0)))))
(define groups (reduce add (dict) (filter (lambda (row) (even? (first row))) rows)))
(join (map (lambda (entry) (string-append (first entry) "=" (second entry)))
           (sort (entries groups) (lambda (a b) (string<? (first a) (first b))))) ",")
"""


def rows(size: int) -> str:
    table = [(i, i * 7 % 10, i * 31 % 100) for i in range(size)]
    groups: dict[str, int] = {}
    for number, group, value in table:
        if number % 2 == 0:
            groups[str(group)] = groups.get(str(group), 0) + value
    return ",".join(f"{key}={value}" for key, value in sorted(groups.items()))


TEXT = """
(define text (join (map (lambda (i) (string-append "w" (modulo (* i i) 37) (if (even? i) "," ""))) (range 0 {size})) " "))
(define words (filter (lambda (word) (not (equal? word ""))) (split (replace text "," "") " ")))
(define counts (reduce (lambda (counts word) (put counts word (+ 1 (get counts word 0)))) (dict) words))
(define best
  (sort (entries counts)
        (lambda (a b) (or (> (second a) (second b))
                          (and (= (second a) (second b)) (string<? (first a) (first b)))))))
(join (map (lambda (entry) (string-append (first entry) ":" (second entry))) (take 5 best)) " ")
"""


def text(size: int) -> str:
    whole = " ".join(f"w{i * i % 37}" + ("," if i % 2 == 0 else "") for i in range(size))
    counts = Counter(word for word in whole.replace(",", "").split(" ") if word)
    best = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return " ".join(f"{word}:{count}" for word, count in best[:5])


TRANSFORM = """
(define (rename value)
  (cond ((map? value)
         (reduce (lambda (made entry) (put made (upper (first entry)) (rename (second entry)))) (dict) (entries value)))
        ((list? value) (map rename value))
        ((number? value) (+ value 1))
        (else value)))
(define (record i) (dict (id i) (tags (list "a" "b" i)) (at (dict (x i) (y (* 2 i))))))
(string-length (json-format (rename (map record (range 0 {size})))))
"""


def transform(size: int) -> int:
    import json

    def rename(value: Any) -> Any:
        if isinstance(value, dict):
            return {key.upper(): rename(content) for key, content in value.items()}
        if isinstance(value, list):
            return [rename(item) for item in value]
        return value + 1 if isinstance(value, int) else value

    records = [{"id": i, "tags": ["a", "b", i], "at": {"x": i, "y": 2 * i}} for i in range(size)]
    return len(json.dumps(rename(records)))


MATRIX = """
(define n {size})
(define a (map (lambda (i) (map (lambda (j) (+ i j)) (range 0 n))) (range 0 n)))
(define (dot x y) (reduce + 0 (map * x y)))
(define (transpose m) (apply zip m))
(define (multiply x y)
  (let ((columns (transpose y)))
    (map (lambda (row) (map (lambda (column) (dot row column)) columns)) x)))
(reduce + 0 (map (lambda (row) (apply max row)) (multiply a (multiply a a))))
"""


def matrix(size: int) -> int:
    a = [[i + j for j in range(size)] for i in range(size)]

    def multiply(x: list[list[int]], y: list[list[int]]) -> list[list[int]]:
        columns = list(zip(*y, strict=True))
        return [[sum(p * q for p, q in zip(row, column, strict=True)) for column in columns] for row in x]

    return sum(max(row) for row in multiply(a, multiply(a, a)))


TRIE = """
(define (insert node word at)
  (if (= at (string-length word))
      (put node "end" true)
      (let ((letter (substring word at (+ at 1))))
        (put node letter (insert (get node letter (dict)) word (+ at 1))))))
(define (count node)
  (reduce (lambda (sum entry) (+ sum (if (equal? (first entry) "end") 1 (count (second entry))))) 0 (entries node)))
(count (reduce (lambda (root i) (insert root (to-string (modulo (* i 7919) 10007)) 0)) (dict) (range 0 {size})))
"""


def trie(size: int) -> int:
    root: dict[str, Any] = {}
    for i in range(size):
        node = root
        for letter in str(i * 7919 % 10007):
            node = node.setdefault(letter, {})
        node["end"] = True

    def count(node: dict[str, Any]) -> int:
        return sum(1 if key == "end" else count(child) for key, child in node.items())

    return count(root)


INTERVALS = """
(define spans
  (map (lambda (i) (let ((start (modulo (* i 7919) 100003))) (list start (+ start (modulo i 23))))) (range 0 {size})))
(define (join-spans left done)
  (if (null? left) done
      (let ((span (first left)))
        (if (and (not (null? done)) (<= (first span) (second (first done))))
            (join-spans (rest left)
                        (cons (list (first (first done)) (max (second span) (second (first done)))) (rest done)))
            (join-spans (rest left) (cons span done))))))
(reduce (lambda (sum span) (+ sum (- (second span) (first span)))) 0
  (join-spans (sort spans (lambda (a b) (< (first a) (first b)))) nil))
"""


def intervals(size: int) -> int:
    spans = [(i * 7919 % 100003, i * 7919 % 100003 + i % 23) for i in range(size)]
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans, key=lambda span: span[0]):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return sum(end - start for start, end in joined)


# --- search -------------------------------------------------------------------------------------

BREADTH = """
(define n {size})
(define (neighbours i) (list (modulo (+ i 1) n) (modulo (* i 2) n) (modulo (* i 3) n)))
(define (search queue seen far)
  (if (null? queue) far
      (let* ((at (first queue)) (deep (get seen (to-string at))))
        (let next ((left (neighbours at)) (queue (rest queue)) (seen seen))
          (if (null? left)
              (search queue seen (max far deep))
              (let ((key (to-string (first left))))
                (if (has-key? seen key)
                    (next (rest left) queue seen)
                    (next (rest left) (append queue (list (first left))) (put seen key (+ deep 1))))))))))
(search (list 0) (dict ("0" 0)) 0)
"""


def breadth(size: int) -> int:
    queue, seen, far = deque([0]), {"0": 0}, 0
    while queue:
        at = queue.popleft()
        deep = seen[str(at)]
        far = max(far, deep)
        for other in ((at + 1) % size, at * 2 % size, at * 3 % size):
            if str(other) not in seen:
                seen[str(other)] = deep + 1
                queue.append(other)
    return far


PRIORITY = """
(define (node rank value left right) (list rank value left right))
(define (rank heap) (if (null? heap) 0 (first heap)))
(define (join-heaps a b)
  (cond ((null? a) b)
        ((null? b) a)
        ((<= (second a) (second b)) (make (second a) (third a) (join-heaps (nth 3 a) b)))
        (else (make (second b) (third b) (join-heaps (nth 3 b) a)))))
(define (make value left right)
  (if (< (rank left) (rank right))
      (node (+ 1 (rank left)) value right left)
      (node (+ 1 (rank right)) value left right)))
(define heap
  (reduce (lambda (heap i) (join-heaps heap (node 1 (modulo (* i 7919) 10007) nil nil))) nil (range 0 {size})))
(let next ((heap heap) (at 0) (sum 0))
  (if (null? heap) sum
      (next (join-heaps (third heap) (nth 3 heap)) (+ at 1) (+ sum (* (modulo at 7) (second heap))))))
"""


def priority(size: int) -> int:
    heap: list[int] = []
    for i in range(size):
        heapq.heappush(heap, i * 7919 % 10007)
    return sum(at % 7 * heapq.heappop(heap) for at in range(size))


MEMO = """
(define (ways amount coins memo)
  (cond ((= amount 0) (list 1 memo))
        ((or (< amount 0) (null? coins)) (list 0 memo))
        (else
          (let* ((key (string-append amount "/" (length coins))) (known (get memo key -1)))
            (if (>= known 0) (list known memo)
                (let* ((with (ways (- amount (first coins)) coins memo))
                       (without (ways amount (rest coins) (second with)))
                       (sum (+ (first with) (first without))))
                  (list sum (put (second without) key sum))))))))
(first (ways {size} (list 1 2 5 10 20 50) (dict)))
"""


def memo(size: int) -> int:
    known: dict[str, int] = {}
    coins = (1, 2, 5, 10, 20, 50)

    def ways(amount: int, at: int) -> int:
        if amount == 0:
            return 1
        if amount < 0 or at == len(coins):
            return 0
        key = f"{amount}/{at}"
        if key not in known:
            known[key] = ways(amount - coins[at], at) + ways(amount, at + 1)
        return known[key]

    return ways(size, 0)


SORTING = """
(define (merge-lists a b less?)
  (let next ((a a) (b b) (done nil))
    (cond ((null? a) (append (reverse done) b))
          ((null? b) (append (reverse done) a))
          ((less? (first b) (first a)) (next a (rest b) (cons (first b) done)))
          (else (next (rest a) b (cons (first a) done))))))
(define (merge-sort items less?)
  (let ((n (length items)))
    (if (< n 2) items
        (let ((half (quotient n 2)))
          (merge-lists (merge-sort (take half items) less?) (merge-sort (drop half items) less?) less?)))))
(define sorted-items
  (merge-sort (map (lambda (i) (modulo (* i 7919) 10007)) (range 0 {size}))
              (lambda (a b) (or (< (modulo a 10) (modulo b 10)) (and (= (modulo a 10) (modulo b 10)) (> a b))))))
(+ (first sorted-items) (* 3 (nth (quotient {size} 2) sorted-items)))
"""


def sorting(size: int) -> int:
    def compare(a: int, b: int) -> int:
        return -1 if a % 10 < b % 10 or (a % 10 == b % 10 and a > b) else 1

    done = sorted((i * 7919 % 10007 for i in range(size)), key=cmp_to_key(compare))
    return done[0] + 3 * done[size // 2]


# --- control ------------------------------------------------------------------------------------

CLOSURES = """
(define (compile-tree tree)
  (cond ((number? tree) (lambda (x) tree))
        ((equal? tree "x") (lambda (x) x))
        (else
          (let ((left (compile-tree (second tree))) (right (compile-tree (third tree))))
            (if (equal? (first tree) "+")
                (lambda (x) (+ (left x) (right x)))
                (lambda (x) (modulo (* (left x) (right x)) 1009)))))))
(define code (compile-tree '("+" ("*" "x" ("+" "x" 3)) ("*" ("+" "x" 1) ("*" "x" 7)))))
(let next ((i 0) (sum 0)) (if (= i {size}) sum (next (+ i 1) (+ sum (code i)))))
"""


def closures(size: int) -> int:
    def compiled(tree: Any) -> Callable[[int], int]:
        if isinstance(tree, int):
            return lambda x: tree
        if tree == "x":
            return lambda x: x
        left, right = compiled(tree[1]), compiled(tree[2])
        if tree[0] == "+":
            return lambda x: left(x) + right(x)
        return lambda x: left(x) * right(x) % 1009

    code = compiled(("+", ("*", "x", ("+", "x", 3)), ("*", ("+", "x", 1), ("*", "x", 7))))
    return sum(code(i) for i in range(size))


WORKFLOW = """
(define (work task attempt)
  (if (= (modulo (+ task attempt) 3) 0)
      (error 'busy (string-append "task " task))
      (* task attempt)))
(define (retry task attempt log)
  (let ((result (try (dict (value (work task attempt))) (catch fault (dict (error (get fault "kind")))))))
    (if (get result "error")
        (retry task (+ attempt 1) (put log (string-append task "." attempt) (get result "error")))
        (put log (to-string task) (get result "value")))))
(define log (reduce (lambda (log task) (retry task 1 log)) (dict) (range 0 {size})))
(+ (length (keys log)) (reduce + 0 (filter number? (values log))))
"""


def workflow(size: int) -> int:
    class Busy(Exception):
        pass

    def work(task: int, attempt: int) -> int:
        if (task + attempt) % 3 == 0:
            raise Busy(f"task {task}")
        return task * attempt

    log: dict[str, Any] = {}
    for task in range(size):
        attempt = 1
        while str(task) not in log:
            try:
                log[str(task)] = work(task, attempt)
            except Busy:
                log[f"{task}.{attempt}"] = "busy"
                attempt += 1
    return len(log) + sum(value for value in log.values() if isinstance(value, int))


MUTUAL = """
(define (ping n sum) (if (= n 0) sum (pong (- n 1) (+ sum 1))))
(define (pong n sum) (if (= n 0) sum (pang (- n 1) (+ sum n))))
(define (pang n sum) (if (= n 0) sum (ping (- n 1) (modulo sum 1000003))))
(ping {size} 0)
"""


def mutual(size: int) -> int:
    total = which = 0
    for n in range(size, 0, -1):
        total = (total + 1, total + n, total % 1000003)[which]
        which = (which + 1) % 3
    return total


APPLYING = """
(define (compose &rest functions)
  (lambda (x) (reduce (lambda (value function) (function value)) x functions)))
(define (plus &rest numbers) (apply + numbers))
(define step (compose (lambda (x) (* x 3)) (lambda (x) (plus x 1 2)) (lambda (x) (modulo x 1009))))
(reduce (lambda (sum i) (+ sum (step i) (apply max (list i 10 20)))) 0 (range 0 {size}))
"""


def applying(size: int) -> int:
    def compose(*functions: Callable[[int], int]) -> Callable[[int], int]:
        return lambda x: reduce(lambda value, function: function(value), functions, x)

    def plus(*numbers: int) -> int:
        return sum(numbers)

    step = compose(lambda x: x * 3, lambda x: plus(x, 1, 2), lambda x: x % 1009)
    return sum(step(i) + max(i, 10, 20) for i in range(size))


MACHINE = """
(define table
  (dict (idle (dict (a "busy") (b "idle"))) (busy (dict (a "busy") (b "done"))) (done (dict (a "idle") (b "done")))))
(define (run i state visits)
  (if (= i {size}) visits
      (let ((next (get (get table state) (if (= (modulo (* i i) 3) 1) "a" "b"))))
        (run (+ i 1) next (update visits next (lambda (n) (+ 1 (or n 0))))))))
(let ((visits (run 0 "idle" (dict))))
  (+ (get visits "idle" 0) (* 2 (get visits "busy" 0)) (* 3 (get visits "done" 0))))
"""


def machine(size: int) -> int:
    table = {
        "idle": {"a": "busy", "b": "idle"},
        "busy": {"a": "busy", "b": "done"},
        "done": {"a": "idle", "b": "done"},
    }
    state, visits = "idle", {"idle": 0, "busy": 0, "done": 0}
    for i in range(size):
        state = table[state]["a" if i * i % 3 == 1 else "b"]
        visits[state] += 1
    return visits["idle"] + 2 * visits["busy"] + 3 * visits["done"]


BANK = """
(define (transfer accounts from to amount)
  (let ((balance (get accounts from)))
    (if (< balance amount) (error 'poor from)
        (put (put accounts from (- balance amount)) to (+ amount (get (put accounts from 0) to))))))
(define start (from-entries (map (lambda (i) (list (string-append "a" i) 100)) (range 0 50))))
(define (run i accounts refused)
  (if (= i {size})
      (+ (* 1000 refused) (get accounts "a7"))
      (let* ((from (string-append "a" (modulo (* i 7) 50))) (to (string-append "a" (modulo (+ 1 (* i 11)) 50)))
             (after (try (transfer accounts from to (modulo i 60)) (catch fault null))))
        (if (or (null? after) (equal? from to))
            (run (+ i 1) accounts (+ refused 1))
            (run (+ i 1) after refused)))))
(run 0 start 0)
"""


def bank(size: int) -> int:
    class Poor(Exception):
        pass

    def transfer(accounts: dict[str, int], source: str, to: str, amount: int) -> None:
        if accounts[source] < amount:
            raise Poor(source)
        accounts[source] -= amount
        accounts[to] += amount

    accounts, refused = {f"a{i}": 100 for i in range(50)}, 0
    for i in range(size):
        source, to = f"a{i * 7 % 50}", f"a{(1 + i * 11) % 50}"
        try:
            if source == to:
                raise Poor(source)
            transfer(accounts, source, to, i % 60)
        except Poor:
            refused += 1
    return 1000 * refused + accounts["a7"]


PARSER = """
(define (item wanted)
  (lambda (tokens) (if (and (not (null? tokens)) (equal? (first tokens) wanted)) (list wanted (rest tokens)) null)))
(define (number tokens)
  (let ((value (if (null? tokens) null (parse-number (first tokens)))))
    (if (null? value) null (list value (rest tokens)))))
(define (both one other join-values)
  (lambda (tokens)
    (let ((left (one tokens)))
      (if (null? left) null
          (let ((right (other (second left))))
            (if (null? right) null (list (join-values (first left) (first right)) (second right))))))))
(define (either one other) (lambda (tokens) (or (one tokens) (other tokens))))
(define (many parser add start)
  (lambda (tokens)
    (let next ((value start) (tokens tokens))
      (let ((found (parser tokens)))
        (if (null? found) (list value tokens) (next (add value (first found)) (second found)))))))
(define (term tokens)
  ((either number
     (both (item "(") (both sum-of (item ")") (lambda (a b) a)) (lambda (a b) b))) tokens))
(define (sum-of tokens)
  ((both term (many (both (item "+") term (lambda (a b) b)) + 0) +) tokens))
(first (sum-of (split (join (map (lambda (i) (string-append "( " i " + 1 )")) (range 0 {size})) " + ") " ")))
"""


def parser(size: int) -> int:
    tokens = " + ".join(f"( {i} + 1 )" for i in range(size)).split(" ")
    Parsed = tuple[Any, int] | None

    def item(wanted: str) -> Callable[[int], Parsed]:
        return lambda at: (wanted, at + 1) if at < len(tokens) and tokens[at] == wanted else None

    def number(at: int) -> Parsed:
        return (int(tokens[at]), at + 1) if at < len(tokens) and tokens[at].isdecimal() else None

    def both(one: Any, other: Any, joined: Any) -> Callable[[int], Parsed]:
        def parse(at: int) -> Parsed:
            if (left := one(at)) is None or (right := other(left[1])) is None:
                return None
            return joined(left[0], right[0]), right[1]

        return parse

    def many(one: Any, add: Any, start: Any) -> Callable[[int], Parsed]:
        def parse(at: int) -> Parsed:
            value = start
            while (found := one(at)) is not None:
                value, at = add(value, found[0]), found[1]
            return value, at

        return parse

    def term(at: int) -> Parsed:
        inner = both(item("("), both(sum_of, item(")"), lambda a, b: a), lambda a, b: b)
        return number(at) or inner(at)

    def sum_of(at: int) -> Parsed:
        more = many(both(item("+"), term, lambda a, b: b), lambda a, b: a + b, 0)
        return both(term, more, lambda a, b: a + b)(at)

    found = sum_of(0)
    assert found is not None
    return found[0]


INTERPRETER = """
(define (evaluate tree env)
  (cond ((number? tree) tree)
        ((string? tree) (get env tree))
        (else
          (case (first tree)
            (("if") (if (= 0 (evaluate (second tree) env)) (evaluate (nth 3 tree) env) (evaluate (third tree) env)))
            (("let") (evaluate (nth 3 tree) (put env (second tree) (evaluate (third tree) env))))
            (("+") (+ (evaluate (second tree) env) (evaluate (third tree) env)))
            (("-") (- (evaluate (second tree) env) (evaluate (third tree) env)))
            (("fib")
             (let ((n (evaluate (second tree) env)))
               (if (< n 2) n (evaluate body (dict (n n))))))
            (else (error 'unknown (first tree)))))))
(define body '("let" "m" ("-" "n" 1) ("+" ("fib" "m") ("fib" ("-" "n" 2)))))
(evaluate '("if" 1 ("fib" {size}) 0) (dict))
"""


def interpreter(size: int) -> int:
    body = ("let", "m", ("-", "n", 1), ("+", ("fib", "m"), ("fib", ("-", "n", 2))))

    def evaluate(tree: Any, env: dict[str, int]) -> int:
        if isinstance(tree, int):
            return tree
        if isinstance(tree, str):
            return env[tree]
        match tree[0]:
            case "if":
                return evaluate(tree[3] if evaluate(tree[1], env) == 0 else tree[2], env)
            case "let":
                return evaluate(tree[3], {**env, tree[1]: evaluate(tree[2], env)})
            case "+":
                return evaluate(tree[1], env) + evaluate(tree[2], env)
            case "-":
                return evaluate(tree[1], env) - evaluate(tree[2], env)
            case "fib":
                n = evaluate(tree[1], env)
                return n if n < 2 else evaluate(body, {"n": n})
        raise ValueError(tree[0])

    return evaluate(("if", 1, ("fib", size), 0), {})


FROZEN: dict[str, Program] = {
    "a tree of maps": (TREE_WALK, tree_walk, 12),
    "an index of keys": (INDEX, index, 5_000),
    "rows in groups": (ROWS, rows, 10_000),
    "words of a text": (TEXT, text, 20_000),
    "JSON renamed": (TRANSFORM, transform, 1_500),
    "matrices": (MATRIX, matrix, 40),
    "a trie": (TRIE, trie, 4_000),
    "intervals": (INTERVALS, intervals, 10_000),
    "breadth first": (BREADTH, breadth, 3_000),
    "a priority queue": (PRIORITY, priority, 3_000),
    "a memo table": (MEMO, memo, 500),
    "merge sort": (SORTING, sorting, 5_000),
    "compiled closures": (CLOSURES, closures, 20_000),
    "retries and a log": (WORKFLOW, workflow, 3_000),
    "mutual recursion": (MUTUAL, mutual, 200_000),
    "functions applied": (APPLYING, applying, 10_000),
    "a table of states": (MACHINE, machine, 30_000),
    "a bank": (BANK, bank, 10_000),
    "parser combinators": (PARSER, parser, 1_000),
    "an interpreter": (INTERPRETER, interpreter, 15),
}
