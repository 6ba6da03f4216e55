"""Training: the learner, the fit around it, and what is told and kept while it runs."""
