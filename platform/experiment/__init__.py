"""An experiment: its settings, its trials under Tune, and what has come of them."""
