"""Exported graphs, to be compared."""

from __future__ import annotations

from pathlib import Path

import onnx


def without_origin(file: Path) -> bytes:
    """All of a graph but what it says of where it is from, its trial's name among it."""
    graph = onnx.load(file)
    del graph.metadata_props[:]
    return graph.SerializeToString(deterministic=True)
