"""Benchmarks: suites of algorithms by datasets by seeds, run in batch, reported with intervals, held to bands."""
