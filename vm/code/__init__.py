"""Bytecode: the opcode table, code images, emission, verification, disassembly and linking."""
