"""Execution of runs: driver, concurrent effects, record, scheduler of several runs."""
