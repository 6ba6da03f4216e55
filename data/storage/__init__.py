"""Datasets on disk and in memory: columns, shards, manifests, statistics."""
