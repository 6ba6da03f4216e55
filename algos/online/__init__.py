"""Training while acting in environments."""
