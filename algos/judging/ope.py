"""d3rlpy's place of what judges policies: `from d3ray.ope import FQE`."""

from __future__ import annotations

from .discrete_fqe import DiscreteFQE as DiscreteFQE
from .fqe import FQE as FQE
from .fqe import FQEConfig as FQEConfig
