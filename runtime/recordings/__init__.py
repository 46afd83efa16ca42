"""Recorded runs: timeline, replay, comparison, fork, trace, recorded test cases."""
