"""Recurrent encoders against torch's own, step by step, as ensembles, and with padding and burn-in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from d3ray.algos.networks.encoders import GRUEncoder, KeysEncoder, LSTMEncoder, VectorEncoder
from d3ray.algos.networks.recurrent import RecurrentNetwork, recalling
from d3ray.data.errors import ConfigError
from d3ray.data.histories import Histories
from d3ray.data.spec import Box, Dict

SEEN = Box(shape=(3,))
UNITS = 5


def built(name: str, members: int | None = None, action_size: int = 0, **settings: Any) -> Any:
    torch.manual_seed(1)
    kind = {"gru": GRUEncoder, "lstm": LSTMEncoder}[name]
    config = kind(units=UNITS, encoder=VectorEncoder(hidden_units=(4,)), **settings)
    return config.build(SEEN, action_size, members).double()


def stretches(count: int = 6, steps: int = 7, before: int = 2) -> Histories:
    torch.manual_seed(2)
    present = torch.tensor([7, 3, 5, 1, 7, 6])[:count]
    mask = torch.arange(steps) >= steps - present[:, None]
    return Histories(torch.randn(count, steps, 3, dtype=torch.float64) * mask[..., None], mask, before)


def theirs(network: RecurrentNetwork, member: int | None = None) -> Any:
    """The cell of torch with the same weights."""
    cell: Any = (nn.GRUCell if network.kind == "gru" else nn.LSTMCell)(4, UNITS, dtype=torch.float64)

    def of(parameter: Tensor) -> Tensor:
        return parameter.detach() if member is None else parameter.detach()[member]

    with torch.no_grad():
        cell.weight_ih.copy_(of(network.inputs.weight).mT)
        cell.weight_hh.copy_(of(network.past.weight).mT)
        cell.bias_ih.copy_(of(network.inputs.bias).flatten())
        cell.bias_hh.copy_(of(network.past.bias).flatten())
    return cell


def walked(network: RecurrentNetwork, cell: Any, histories: Histories, member: int | None = None) -> Tensor:
    """The h of every step that is learned from, [N, units]: an episode, a step at a time, by torch's cell; 0 of padding."""
    told: list[Tensor] = []
    for observation, mask in zip(histories.observation, histories.mask, strict=True):
        state: Any = None
        for t in range(len(mask)):
            if mask[t]:
                seen = network.before(observation[t][None])
                state = cell(seen if member is None else seen[member], state)
            if t >= histories.before:
                zero = torch.zeros(1, UNITS, dtype=torch.float64)
                told.append(zero if state is None else state if network.kind == "gru" else state[0])
    return torch.cat(told)


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_it_is_torchs_cell_step_by_step(name: str) -> None:
    network, histories = built(name), stretches()
    torch.testing.assert_close(network(histories), walked(network, theirs(network), histories), rtol=0, atol=1e-10)
    assert network.features == UNITS


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_members_are_networks_of_their_own(name: str) -> None:
    torch.manual_seed(3)
    network, histories = built(name, members=3, head_units=(6,)), stretches()
    found = network(histories)
    assert found.shape == (3, 30, 6)
    for k in range(3):
        hidden = walked(network, theirs(network, k), histories, k)
        layer = network.head[0]
        expected = (hidden @ layer.weight[k] + layer.bias[k]).relu()
        torch.testing.assert_close(found[k], expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(network(histories, None, 2), found[:2], rtol=0, atol=1e-12)


@pytest.mark.parametrize("members", [None, 2])
@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_a_step_at_a_time_is_the_stretch_at_once(name: str, members: int | None) -> None:
    network = built(name, members)
    histories = Histories(torch.randn(4, 6, 3, dtype=torch.float64), torch.ones(4, 6, dtype=torch.bool), 0)
    together = network(histories).unflatten(-2, (4, 6))
    memory = torch.zeros(4, *network.memory_shape, dtype=torch.float64)
    for t in range(6):
        with recalling({network: memory}) as recall:
            found = network(histories.observation[:, t])
        memory = recall.left[network]
        assert memory.shape == (4, *network.memory_shape)
        torch.testing.assert_close(found, together[..., t, :], rtol=0, atol=1e-12)
    torch.testing.assert_close(network(histories.observation[:, 0]), together[..., 0, :], rtol=0, atol=1e-12)  # it begins


@pytest.mark.parametrize("members", [None, 2])
@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_stretches_of_a_rollout_begin_with_what_is_handed_in_and_anew_with_each_episode(name: str, members: int | None) -> None:
    """Three stretches of eight steps, one with three of padding; episodes begin at their first, in their middle, at their last."""
    network = built(name, members)
    begins = torch.zeros(3, 8, dtype=torch.bool)
    begins[0, 0] = begins[1, 4] = begins[2, 3] = begins[2, 7] = True
    mask = torch.arange(8) >= torch.tensor([0, 0, 3])[:, None]
    histories = Histories(torch.randn(3, 8, 3, dtype=torch.float64), mask, 0, begins)
    handed = torch.randn(3, *network.memory_shape, dtype=torch.float64)
    with recalling({network: handed}) as recall:
        found = network(histories).unflatten(-2, (3, 8))
    left = recall.left[network]
    assert left.shape == (3, 8, *network.memory_shape)
    for b in range(3):
        memory = handed[b][None]
        for t in range(8):
            if mask[b, t]:
                with recalling({network: torch.zeros_like(memory) if begins[b, t] else memory}) as one:
                    said = network(histories.observation[b, t][None])
                memory = one.left[network]
                torch.testing.assert_close(found[..., b, t, :], said[..., 0, :], rtol=0, atol=1e-12)
            torch.testing.assert_close(left[b, t], memory[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_no_gradient_reaches_the_burn_in_and_all_of_it_the_steps_after(name: str) -> None:
    network, histories = built(name), stretches()
    seen = histories.observation.clone().requires_grad_()
    given = Histories(seen, histories.mask, 2)
    network(given).square().sum().backward()
    assert seen.grad is not None
    assert not seen.grad[:, :2].any()
    assert seen.grad[:, 2:][histories.mask[:, 2:]].any(-1).all()
    assert not seen.grad[:, 2:][~histories.mask[:, 2:]].any()
    longer = Histories(histories.observation, histories.mask, 0)
    torch.testing.assert_close(network(longer).unflatten(0, (6, 7))[:, 2:].flatten(0, 1), network(histories))


def test_an_action_enters_after_the_memory_through_a_layer() -> None:
    network, histories = built("gru", members=2, action_size=2), stretches()
    action = torch.randn(30, 2, dtype=torch.float64)
    hidden = torch.stack([walked(network, theirs(network, k), histories, k) for k in range(2)])
    layer = network.head[0]
    expected = (torch.cat((hidden, action.expand(2, 30, 2)), -1) @ layer.weight + layer.bias).relu()
    torch.testing.assert_close(network(histories, action), expected, rtol=0, atol=1e-10)
    assert network.features == UNITS


def test_others_see_each_step_by_itself() -> None:
    network, histories = VectorEncoder(hidden_units=(4,)).build(SEEN).double(), stretches()
    torch.testing.assert_close(network(histories), network(histories.observation[:, 2:].flatten(0, 1)))


def test_keys_and_images_are_read_by_what_stands_before() -> None:
    space = Dict(spaces={"image": Box(shape=(1, 44, 44), dtype="uint8", low=0, high=255), "place": SEEN})
    network = GRUEncoder(units=UNITS, encoder=KeysEncoder(hidden_units=(4,))).build(space)
    histories = stretches()
    seen = {"image": torch.rand(6, 7, 1, 44, 44), "place": histories.observation.float()}
    assert network(Histories(seen, histories.mask, 2)).shape == (30, UNITS)


def test_weights_begin_as_torchs() -> None:
    network = built("lstm")
    for parameter in (*network.inputs.parameters(), *network.past.parameters()):
        assert 0.8 * UNITS**-0.5 < float(parameter.detach().abs().max()) <= UNITS**-0.5


def test_what_cannot_stand_within_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="The encoder within gru is lstm, which remembers too: choose one that does not"):
        GRUEncoder(encoder=LSTMEncoder()).build(SEEN)
    with pytest.raises(ConfigError, match="The encoder within lstm has normalization 'batch', into which padding would enter"):
        LSTMEncoder(encoder=VectorEncoder(normalization="batch")).build(SEEN)
    with pytest.raises(ConfigError, match="The encoder of key 'a' is gru, which remembers: set gru, with keys as its encoder"):
        KeysEncoder(encoders={"a": GRUEncoder()}).build(Dict(spaces={"a": SEEN, "b": SEEN}))
