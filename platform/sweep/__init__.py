"""A search over configurations: spaces, searchers, schedulers, and what it has come to."""
