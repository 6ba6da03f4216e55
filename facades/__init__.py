"""What other programs' users import, on d3ray's path: `d3ray.d3rlpy`, `d3ray.pfrl`, `d3ray.metrics`. Nothing else knows of it."""

__path__: list[str] = []  # each module has one name, the one at the root
