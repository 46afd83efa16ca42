"""The verbs of the command line; `cli` has one command for each, paired when it is loaded.

HOMES: the module of `commands` that each is declared in.
"""

VERBS = {
    "run": "Run a loop.",
    "resume": "Go on with a run that was cut off.",
    "batch": "Run many loops in one process.",
    "create": "Make a new loop: by questions, by options, or from words.",
    "validate": "Check loops without running them.",
    "compile": "Compile a loop.",
    "disasm": "Show the bytecode of a loop or an image.",
    "fmt": "Lay out S-expression files.",
    "list": "List the loops here, or what is running.",
    "replay": "Run a recorded run again, with no world, and compare.",
    "trace": "Look through a run, forwards and backwards.",
    "record": "Make a test case of a run.",
    "fork": "Begin a new run at a point of another, sharing its past.",
    "test": "Run recorded cases again, and say what is different.",
    "status": "Show what a run does and how far it is.",
    "stop": "Stop runs; they can be resumed.",
    "answer": "Answer a question that a run asks, or show what is asked.",
    "attach": "Show a run live, as if it had been started here.",
    "logs": "Show what happened in a run, event by event.",
    "profile": "Show where the time of a run went.",
    "history": "Show the runs that ended, and what they come to.",
    "clean": "Remove old runs that ended.",
    "task": "Do one task, or evaluate an expression, and show its result.",
    "repl": "Evaluate forms one after another, as they are typed.",
    "index": "Bring the index of the project's files up to date.",
    "context": "Find the project's files that matter for something.",
    "tools": "List the tools and tasks that flows can call here.",
    "mcp": "Ask MCP servers what they offer, or show what is known of it.",
    "schema": "Print the JSON Schema of loop files or of a result.",
}

_GROUPS = {
    "authoring": ("create",),
    "batch": ("batch",),
    "interactive": ("task", "repl"),
    "mcp": ("mcp",),
    "memory": ("index", "context"),
    "people": ("answer",),
    "programs": ("run", "resume", "validate", "compile", "disasm", "fmt", "list", "schema"),
    "records": ("replay", "record", "test", "fork", "trace"),
    "runs": ("status", "stop", "attach", "logs", "profile", "history", "clean"),
    "tools": ("tools",),
}
HOMES = {verb: home for home, verbs in _GROUPS.items() for verb in verbs}
