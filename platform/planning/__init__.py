"""Before an experiment: what it will take, from a probe, and how many trials share a GPU."""
