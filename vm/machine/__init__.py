"""The interpreter: frames, steps, parallel strands, outcomes, snapshots and their migration."""
