"""Experiments in a program's hand: `d3ray.platform.api` under the name that users say."""

from d3ray.data.lazy import also_called
from d3ray.platform import api
from d3ray.platform.api import told

also_called({__name__: api, f"{__name__}.datasets": api.datasets, f"{__name__}.told": told})
