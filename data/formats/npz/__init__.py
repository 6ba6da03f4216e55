"""NumPy archives: flat arrays, OGBench's, PFRL's."""
