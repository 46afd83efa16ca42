"""The verbs of the command line; `cli` has one command for each, paired when it is loaded."""

VERBS = {
    "run": "Run a loop.",
    "resume": "Go on with a run that was cut off.",
    "validate": "Check loops without running them.",
    "compile": "Compile a loop.",
    "disasm": "Show the bytecode of a loop or an image.",
    "fmt": "Lay out S-expression files.",
    "list": "List the loops here, or what is running.",
    "replay": "Run a recorded run again, with no world, and compare.",
    "record": "Make a test case of a run.",
    "test": "Run recorded cases again, and say what is different.",
    "status": "Show what a run does and how far it is.",
    "stop": "Stop runs; they can be resumed.",
    "attach": "Show a run live, as if it had been started here.",
    "logs": "Show what happened in a run, event by event.",
    "history": "Show the runs that ended, and what they come to.",
    "clean": "Remove old runs that ended.",
    "repl": "Evaluate forms one after another, as they are typed.",
    "index": "Bring the index of the project's files up to date.",
    "context": "Find the project's files that matter for something.",
    "schema": "Print the JSON Schema of loop files, for editors.",
}
