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
    "status": "Show what a run does and how far it is.",
    "stop": "Stop runs; they can be resumed.",
    "repl": "Evaluate forms one after another, as they are typed.",
    "schema": "Print the JSON Schema of loop files, for editors.",
}
