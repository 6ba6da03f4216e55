"""d3rlpy's place of what judges policies: `from d3ray.ope import FQE`."""

from __future__ import annotations

from d3ray.algos.judging.discrete_fqe import DiscreteFQE as DiscreteFQE
from d3ray.algos.judging.fqe import FQE as FQE
from d3ray.algos.judging.fqe import FQEConfig as FQEConfig
