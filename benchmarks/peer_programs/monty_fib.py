"""Monty: fib in a session of one of its workers; the function is defined beforehand."""

from __future__ import annotations

from time import perf_counter

from pydantic_monty import Monty
from serving import serve

FIB = """\
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
"""


def main() -> None:
    with Monty() as pool, pool.checkout() as session:
        session.feed_run(FIB)

        def measure(size: int) -> dict[str, float]:
            started_at = perf_counter()
            value = session.feed_run(f"fib({size})")
            return {"seconds": perf_counter() - started_at, "value": value}

        serve(measure, size=3)


if __name__ == "__main__":
    main()
