"""RLlib's recorded experience, old and new."""
