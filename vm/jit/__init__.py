"""The direct tier: the same machine, run as Python functions made of an image's code.

It gives the same outcomes, notes, ticks and snapshots as the interpreter (`vm.machine`), which is what
defines them. Imported once a program has run for a while; see `spec/machine.md`, Tiers.
"""
