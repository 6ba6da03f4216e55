"""Data with two modes, of `examples/two_ways.py`: a mean runs into the obstacle, a flow goes around it, FQL on the better side."""

import importlib.util

import numpy as np
import pytest

import d3ray


@pytest.fixture(scope="module")
def two_ways():
    spec = importlib.util.spec_from_file_location("two_ways", f"{d3ray.__path__[0]}/examples/two_ways.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_touches_the_disc(two_ways):
    """By hand: straight through, wide around on both sides, and a line that passes at 0.3 / √1.09 = 0.287."""
    start, waypoint = np.array([[0.0], [0.3], [-0.3], [0.3]]), np.array([[0.0, 0.0], [-0.65, 0.0], [0.65, 0.0], [0.3, 0.0]])
    assert two_ways.touches(start, waypoint).tolist() == [True, False, False, True]
    data = two_ways.recorded(right_is_better=True)
    start, waypoint = data.columns["observation"][::2], data.columns["action"][::2]
    assert two_ways.touches(start, waypoint).mean() < 0.002
    np.testing.assert_array_equal(data.columns["reward"][::2], waypoint[:, 0] > 0)


@pytest.mark.long
def test_a_mean_runs_into_the_obstacle_and_a_flow_goes_around(two_ways):
    """Of 500 walks. Waypoints at random would touch the disc in a third of the walks."""
    data = two_ways.recorded(right_is_better=False)
    start, waypoint = two_ways.walked(two_ways.trained("BC", data, 1_500))
    assert two_ways.touches(start, waypoint).mean() > 0.95
    assert np.abs(waypoint).max() < 0.35
    start, waypoint = two_ways.walked(two_ways.trained("FBC", data, 1_500))
    assert two_ways.touches(start, waypoint).mean() < 0.2
    assert 0.35 < (waypoint[:, 0] > 0).mean() < 0.65
    sides = waypoint[~two_ways.touches(start, waypoint)]
    np.testing.assert_allclose(np.abs(sides).mean(0), [0.65, 0.05], atol=0.1)


@pytest.mark.long
@pytest.mark.parametrize("label", ["FQL, α = 0.3", "IFQL"])
def test_values_choose_the_side(two_ways, label):
    """The flow of the same data goes to both sides."""
    start, waypoint = two_ways.walked(two_ways.trained(label, two_ways.recorded(right_is_better=True), 1_500))
    assert two_ways.touches(start, waypoint).mean() < 0.1
    assert (waypoint[:, 0] > 0).mean() > 0.95
