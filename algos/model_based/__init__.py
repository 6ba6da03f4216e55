"""Models of the dynamics, and algorithms that learn from what they generate."""
