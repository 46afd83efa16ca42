"""The program model every frontend lowers to and every machine runs: states and jumps.

`nodes` is the model, `primitives` and `effects` declare what its expressions and effects may name,
`text` prints and parses it, `verify` checks it, `spans` and `diagnostics` say where and what is
wrong. Imports nothing of ours.
"""
