"""`d3ray.gpu`, d3rlpy's place of accelerators."""

from d3ray.algos.devices import Device as Device
