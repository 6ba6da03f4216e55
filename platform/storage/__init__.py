"""The folders of experiments and trials, local or behind a URI, and who may write there."""
