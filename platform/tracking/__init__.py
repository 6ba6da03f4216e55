"""MLflow: runs, metrics, models and the registry, filled from an experiment's folders."""
