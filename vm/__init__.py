"""The machine: what the IR is compiled to and what runs it.

`opcodes` declares the instructions, `emit` compiles a program to an `image`, `machine` runs one,
`snapshot` stores a stopped one, `values` and `faults` are what programs compute and how they fail.
A machine never touches the world: what a program wants of it is an effect (`spec/machine.md`).
Imports only `ir`; what a run needs imports nothing heavy, so that starting one is quick.
"""
