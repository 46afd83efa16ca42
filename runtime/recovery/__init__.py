"""Recovery of interrupted runs: replay of the journal, effects in doubt."""
