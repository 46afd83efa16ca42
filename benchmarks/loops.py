"""The measured loops, as YAML."""

from __future__ import annotations

THREE_STEPS = """\
name: three
paradigm: fsm
initial: first
states:
  first: {action: "true", next: second}
  second: {action: "true", next: third}
  third: {action: "true", next: done}
  done: {terminal: true}
"""


def repeated(action: str, count: int) -> str:
    """Return a loop with `count` steps of one action, each evaluated, routed and counted; it ends at
    its limit.
    """
    return f"""\
name: steps
paradigm: fsm
initial: work
max_iterations: {count}
states:
  work:
    action: {action!r}
    on_success: $current
    on_failure: failed
  failed: {{terminal: true, status: failure}}
"""


def once(action: str) -> str:
    """Return a loop with one action."""
    return f"""\
name: once
paradigm: fsm
initial: work
states:
  work:
    action: {action!r}
    on_success: done
    on_failure: failed
  done: {{terminal: true}}
  failed: {{terminal: true, status: failure}}
"""


def captured(action: str, count: int) -> str:
    """Return a loop with one action whose output stays captured, followed by `count` short steps."""
    return f"""\
name: captured
paradigm: fsm
initial: gather
max_iterations: {count}
states:
  gather:
    action: {action!r}
    capture: big
    on_success: work
    on_failure: failed
  work:
    action: "true"
    on_success: $current
    on_failure: failed
  failed: {{terminal: true, status: failure}}
"""


def decisions(count: int) -> str:
    """Return a loop with `count` iterations that only decide and perform no action."""
    return f"""\
name: decisions
paradigm: fsm
initial: decide
max_iterations: {count + 1}
states:
  decide:
    evaluate:
      type: output_numeric
      source: "${{state.iteration}}"
      operator: ge
      target: {count}
    route:
      success: done
      failure: $current
      error: failed
  done: {{terminal: true}}
  failed: {{terminal: true, status: failure}}
"""


def machine(states: int, ring: int) -> str:
    """`states` working states, the first `ring` of which lead round while their actions succeed.

    Each has an action with a variable, is judged and routed both ways; every tenth captures its
    output, which its successor reads. All of them stand on cycles, so each counts its visits.
    """
    lines = [
        "name: machine",
        "paradigm: fsm",
        "initial: s0",
        "max_iterations: 1000000000",
        "context: {target: all}",
        "states:",
    ]
    for number in range(states):
        last = number == ring - 1
        follows = 0 if last else (number + 1) % states
        # Where control stays in the ring, the rest is reached from its last state's failure.
        fails = "done" if number == states - 1 else f"s{number + 1}" if last else f"s{max(number - 1, 0)}"
        reads = f" ${{captured.c{number - 1}.output:default=none}}" if number % 10 == 1 else ""
        lines += [
            f"  s{number}:",
            f'    action: "make part-{number} TARGET=${{context.target}}{reads}"',
            f"    on_success: s{follows}",
            f"    on_failure: {fails}",
        ]
        if number % 10 == 0:
            lines.append(f"    capture: c{number}")
    lines.append("  done: {terminal: true}")
    return "\n".join(lines) + "\n"


def growing(steps: int) -> str:
    """Return a loop with `steps` steps; every second step captures its output under its own name."""
    lines = ["name: growing", "paradigm: fsm", "initial: s0", "max_iterations: 10", "states:"]
    for number in range(steps + 1):
        capture = f", capture: c{number}" if number % 2 == 0 else ""
        follows = "done" if number == steps else f"s{number + 1}"
        lines.append(f'  s{number}: {{action: "true"{capture}, next: {follows}}}')
    lines.append("  done: {terminal: true}")
    return "\n".join(lines) + "\n"
