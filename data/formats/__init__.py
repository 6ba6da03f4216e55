"""Importers: one module a format, each a plain function from files to a `StepTable`."""
