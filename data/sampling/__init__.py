"""What a gradient step reads: samplers over datasets and replay buffers.

The batch of a step is a function of (what the source holds, seed, step); only prioritised samplers keep anything else. Drawing is
index arithmetic over rows, so it costs the same however large the source is.
"""

from ..batch import BLOCK, Source, Steps
from ..frames import FrameStack, stacked_spec
from .gather import Gather, as_tensors, observations
from .mixture import Mixture, linear
from .priorities import Priorities
from .prioritized import PrioritizedEpisodeSampler, PrioritizedSampler
from .recurrent import RecurrentSampler
from .returns import COSTS, INITIAL, RETURNS, range_of_returns, returns_to_go
from .sequences import EpisodeSampler, SequenceSampler
from .stream import Position, StreamSampler
from .sum_tree import SumTree
from .transitions import EpochSampler, TransitionSampler, WeightedSampler, exponential_weights, top_weights
from .windows import Place, Runs, Until, Windows

__all__ = [
    "BLOCK",
    "COSTS",
    "INITIAL",
    "RETURNS",
    "EpisodeSampler",
    "EpochSampler",
    "FrameStack",
    "Gather",
    "Mixture",
    "Place",
    "Position",
    "Priorities",
    "PrioritizedEpisodeSampler",
    "PrioritizedSampler",
    "RecurrentSampler",
    "Runs",
    "SequenceSampler",
    "Source",
    "Steps",
    "StreamSampler",
    "SumTree",
    "TransitionSampler",
    "Until",
    "WeightedSampler",
    "Windows",
    "as_tensors",
    "exponential_weights",
    "linear",
    "observations",
    "range_of_returns",
    "returns_to_go",
    "stacked_spec",
    "top_weights",
]
