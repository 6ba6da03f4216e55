"""Values of returns: arithmetic, choices, mixtures and C51's projection, against loops in NumPy and cases worked by hand."""

import numpy as np
import pytest
import torch
from torch.func import vmap
from torch.utils import _pytree as pytree

from d3ray.algos.losses.sampled_actions import best_of, by_parts
from d3ray.algos.networks.q_functions import Values, as_values, reduced

MEMBERS, ACTIONS, N, B = 2, 3, 4, 5


def random_values(*shape, weighted=True, seed=0):
    rng = np.random.default_rng(seed)
    weights = rng.uniform(size=shape)
    weights = torch.from_numpy(weights / weights.sum(-2, keepdims=True)) if weighted else None
    return Values(torch.from_numpy(rng.normal(size=shape)), weights)


def test_goals_are_written_as_in_papers():
    values = Values(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0.25, 0.5], [0.75, 0.5]]))  # [N, B]
    reward, discount = torch.tensor([10.0, 20.0]), torch.tensor([0.5, 0.0])
    for goal in (reward + discount * values, values * discount + reward, reward + (values - 0.0) * discount):
        assert goal.atoms.tolist() == [[10.5, 20], [11.5, 20]]
        assert goal.weights is values.weights
    assert (values - torch.tensor([1.0, 0.0])).atoms.tolist() == [[0, 2], [2, 4]]
    assert (2 * values + 1).atoms.tolist() == [[3, 5], [7, 9]]
    assert values.mean.tolist() == [2.5, 3]
    assert (reward + discount * values).mean.tolist() == [11.25, 20]
    each = random_values(MEMBERS, N, MEMBERS)  # as many states as members, or the wrong axis would not show
    shift = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    torch.testing.assert_close((each + shift).atoms, each.atoms + shift[:, None])
    with pytest.raises(TypeError):
        reward / values  # type: ignore[operator]
    assert as_values(reward).mean is not reward
    assert as_values(reward).atoms.tolist() == [[10, 20]]


@pytest.mark.parametrize("weighted", [False, True])
def test_an_expectation_weighs_and_an_action_has_its_own(weighted):
    every = random_values(MEMBERS, ACTIONS, N, B, weighted=weighted)
    atoms = every.atoms.numpy()
    weights = np.full(atoms.shape, 1 / N) if every.weights is None else every.weights.numpy()
    action = torch.tensor([2, 0, 1, 1, 0])
    shares = torch.from_numpy(np.random.default_rng(1).dirichlet(np.ones(ACTIONS), B))
    taken, mixed = every.of(action), every.mixed(shares)
    assert mixed.atoms.shape == (MEMBERS, ACTIONS * N, B)
    assert mixed.weights is not None
    torch.testing.assert_close(mixed.weights.sum(-2), torch.ones(MEMBERS, B, dtype=torch.float64))
    for m in range(MEMBERS):
        for b in range(B):
            means = [sum(w * x for w, x in zip(weights[m, a, :, b], atoms[m, a, :, b], strict=True)) for a in range(ACTIONS)]
            np.testing.assert_allclose(every.mean[m, :, b], means, rtol=1e-12)
            np.testing.assert_array_equal(taken.atoms[m, :, b], atoms[m, action[b], :, b])
            assert taken.mean[m, b].item() == pytest.approx(means[action[b]])
            assert mixed.mean[m, b].item() == pytest.approx(sum(shares[b, a].item() * means[a] for a in range(ACTIONS)))


def test_ensembles_of_weighted_values():
    values = random_values(MEMBERS, N, B)
    means = values.mean
    least, largest, mean, mix = (reduced(values, how, 0.75) for how in ("min", "max", "mean", "mix"))
    picks = set()
    for b in range(B):
        low = int(means[:, b].argmin())
        picks.add(low)
        for part in ("atoms", "weights"):
            assert torch.equal(getattr(least, part)[:, b], getattr(values, part)[low, :, b])  # its weights come along
            assert torch.equal(getattr(largest, part)[:, b], getattr(values, part)[1 - low, :, b])
    assert picks == {0, 1}
    assert mean.atoms.shape == mix.atoms.shape == (2 * N, B)
    torch.testing.assert_close(mean.mean, means.mean(0))
    torch.testing.assert_close(mix.mean, 0.75 * means.amin(0) + 0.25 * means.amax(0))
    for each in (mean, mix):
        assert each.weights is not None
        torch.testing.assert_close(each.weights.sum(-2), torch.ones(B, dtype=torch.float64))
    every = random_values(MEMBERS, ACTIONS, N, B)
    for how in ("min", "mean", "mix"):  # each action as if it were alone
        whole = reduced(every, how, 0.75)
        for a in range(ACTIONS):
            alone = reduced(every.map(lambda x, a=a: x[:, a]), how, 0.75)
            torch.testing.assert_close(whole.map(lambda x, a=a: x[a]).mean, alone.mean)


def test_the_best_of_repetitions_takes_its_weights_along():
    n = 3
    values = random_values(N, n * B)
    best, chosen = best_of(values, n)
    for b in range(B):
        k = max(range(n), key=lambda k: values.mean[k * B + b].item())
        assert chosen[b] == k
        for part in ("atoms", "weights"):
            assert torch.equal(getattr(best, part)[:, b], getattr(values, part)[:, k * B + b])
    noise = torch.randn(7, 300, 2)  # more than what is worked on at once
    with torch.no_grad():
        parts = by_parts(lambda x: Values(x.flatten(0, 1).mT, 2 * x.flatten(0, 1).mT), noise)
    assert torch.equal(parts.atoms, noise.flatten(0, 1).mT)
    assert torch.equal(parts.weights, 2 * noise.flatten(0, 1).mT)


def slow_projection(atoms, weights, support):
    """C51's Algorithm 1, of one state, with its case for a sample that lies on an atom."""
    shares, step = np.zeros(len(support)), support[1] - support[0]
    for atom, weight in zip(atoms, weights, strict=True):
        place = (min(max(atom, support[0]), support[-1]) - support[0]) / step
        low, high = int(np.floor(place)), int(np.ceil(place))
        if low == high:
            shares[low] += weight
        else:
            shares[low] += weight * (high - place)
            shares[high] += weight * (place - low)
    return shares


@pytest.mark.parametrize("weighted", [False, True])
def test_a_projection_is_the_slow_loops(weighted):
    values = 4 * random_values(MEMBERS, 9, B, weighted=weighted)  # beyond both ends of the support, too
    values.atoms[0, :3, 0] = torch.tensor([-2.0, 3.0, 0.5])  # the ends, and an atom
    support = torch.linspace(-2, 3, 11, dtype=torch.float64)
    found = values.onto(support)
    assert found.shape == (MEMBERS, 11, B)
    for m in range(MEMBERS):
        for b in range(B):
            weights = np.full(9, 1 / 9) if values.weights is None else values.weights[m, :, b].numpy()
            expected = slow_projection(values.atoms[m, :, b].numpy(), weights, support.numpy())
            np.testing.assert_allclose(found[m, :, b], expected, rtol=0, atol=1e-14)
    torch.testing.assert_close(found.sum(-2), torch.ones(MEMBERS, B, dtype=torch.float64))  # no mass is lost
    rows = vmap(lambda one: one.onto(support))(values)  # a row a member
    assert torch.equal(rows, found)
    assert vmap(lambda one, of: one.onto(of))(values, torch.stack((support, 2 * support))).shape == found.shape


def test_mass_that_lies_on_an_atom_stays_there_in_float32_too():
    support = torch.linspace(-10, 10, 51)
    on = Values(support[:, None].expand(51, 51).contiguous(), torch.eye(51))  # all the mass of state k is on atom k
    torch.testing.assert_close(on.onto(support), torch.eye(51), rtol=0, atol=1e-5)


def test_what_is_no_number_stays_in_its_state():
    atoms = torch.tensor([[0.0, float("nan"), 1.0], [1.0, 0.5, float("inf")]])
    found = Values(atoms).onto(torch.linspace(0, 1, 3))
    assert found[:, 0].tolist() == [0.5, 0, 0.5]
    assert found[:, 1].isnan().any()
    assert found[:, 2].tolist() == [0, 0, 1]


def test_values_are_a_tree_of_tensors():
    for weighted in (False, True):
        values = random_values(N, B, weighted=weighted)
        assert len(pytree.tree_leaves(values)) == 1 + weighted
        doubled = pytree.tree_map(lambda x: 2 * x, values)
        assert isinstance(doubled, Values)
        assert torch.equal(doubled.atoms, 2 * values.atoms)
