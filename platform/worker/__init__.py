"""A trial in its own process: training, checkpoints, evaluations, and what it does with a scheduler's decisions. Without Ray."""
