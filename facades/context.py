"""`d3ray.context`, d3rlpy's place of what spreads copies over accelerators."""

from d3ray.algos.devices import parallel as parallel
