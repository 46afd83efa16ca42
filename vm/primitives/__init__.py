"""The pure primitives: one handler for each row of `ir.primitives`, grouped by operand type."""
