"""Pages for a stranger: their frame, their charts, and the pages of experiments, sweeps and datasets."""
