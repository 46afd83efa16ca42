"""Static analyses of functions: types, liveness, uniqueness, bounds checks, inlining."""
