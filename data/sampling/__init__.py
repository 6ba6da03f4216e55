"""What a gradient step reads: samplers over datasets and replay buffers.

A sampler keeps no state: the batch of a step is a function of (seed, step). Drawing is index arithmetic over the rows of a
dataset, so it costs the same however large the dataset is.
"""

from .gather import Gather, as_tensors, observations
from .source import BLOCK, Source
from .transitions import TransitionSampler
from .windows import Windows

__all__ = ["BLOCK", "Gather", "Source", "TransitionSampler", "Windows", "as_tensors", "observations"]
