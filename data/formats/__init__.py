"""Importers of foreign files. What is wrong with a file is a DataError that names file, array and row; functions say what else."""
