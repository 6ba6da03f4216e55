"""`hold` and `release`: a row that is held stays as it is, to the count of its optimiser's steps, and no value is read."""

from typing import Any, ClassVar

import pytest
import torch

from d3ray.algos import testing
from d3ray.algos.optimizers import Adam, RowOptimizer
from d3ray.algos.stack import Stack
from d3ray.algos.testing import largest_difference, maker, tiny_dataset
from d3ray.algos.values.dqn import DQN, DQNConfig
from d3ray.data.config import setting
from d3ray.data.errors import ConfigError

DATA = tiny_dataset(discrete=True)
ROUND = 6  # gradient steps after which it goes on


class ToyHoldConfig(DQNConfig):
    bound: float = setting(0.6, "loss of a batch above which the critic is held", gt=0)


class ToyHold(DQN):
    """DQN that stays as it is for the rest of a round once it fits a batch worse than its bound."""

    Config: ClassVar = ToyHoldConfig
    holds: ClassVar = ("critic",)
    exemptions: ClassVar = DQN.exemptions

    def schedule(self, step: int) -> tuple[str, ...]:
        return (*(("renew",) if step % ROUND == 0 else ()), "look", *super().schedule(step))

    def renew(self, learner: Any, batch: Any) -> None:
        learner.release("critic")

    def look(self, learner: Any, batch: Any) -> None:
        learner.hold(self.misses, "critic", batch)

    def misses(self, nets: Any, batch: Any, h: Any) -> Any:
        return self.critic_loss(nets, batch, h)[0].mean() > h.bound


class ReadsWhatItHolds(ToyHold):
    """The same by an `if`, as a paper's `break`."""

    held = False

    def renew(self, learner: Any, batch: Any) -> None:
        self.held = False

    def look(self, learner: Any, batch: Any) -> None:
        self.held |= bool(learner.look(self.misses, batch))

    def critic(self, learner: Any, batch: Any) -> None:
        if not self.held:
            super().critic(learner, batch)


def settings(**more: Any) -> dict[str, Any]:
    return {"dtype": "float64", "learning_rate": 1e-2, **more}


OPTIMIZERS = ["adam", {"name": "sgd", "momentum": 0.9}, "muon", {"name": "rmsprop", "centered": True}]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_held_is_what_a_break_would_have_left(optimizer: Any) -> None:
    """By every optimiser: single runs to the bit, rows of a stack up to the rounding of its products."""
    seeds, counts = (3, 4, 5), []
    stack = Stack(maker(ToyHold)(**settings(optimizer=optimizer)), seeds).fit(DATA, 40, 40)
    for k, seed in enumerate(seeds):
        made, broken = (
            maker(cls)(**settings(optimizer=optimizer, seed=seed)).fit(DATA, 40, 40) for cls in (ToyHold, ReadsWhatItHolds)
        )
        expected, found, row = (one.state()[0] for one in (broken, made, stack.seed(k)))
        assert {name for name in found if name.startswith("held/")} == {"held/critic"}
        assert found["held/critic"].dtype == torch.bool
        assert bool(found["held/critic"]) == broken.held
        assert largest_difference(row, found)[1] < 1e-13
        del found["held/critic"], expected["held/critic"]
        assert largest_difference(found, expected)[1] == 0
        counts.append(int(found["optimizer/critic/step"]))
    assert len(set(counts)) == 3  # rows were held for other numbers of steps
    assert 5 < min(counts) < max(counts) < 40
    assert stack.state()[0]["optimizer/critic/step"].tolist() == counts


def test_rows_of_other_rates_are_held_alike() -> None:
    rows = [{}, {"learning_rate": 2e-2, "bound": 1.0}]
    stack = Stack(maker(ToyHold)(**settings()), (3, 4), rows).fit(DATA, 30, 30)
    for k, row in enumerate(rows):
        alone = maker(ToyHold)(**settings(seed=3 + k, **row)).fit(DATA, 30, 30)
        assert largest_difference(stack.seed(k).state()[0], alone.state()[0])[1] < 1e-13


@pytest.mark.long
def test_it_keeps_the_contract() -> None:
    testing.check_algorithm(ToyHold, onnx=False)


@pytest.mark.parametrize("n_steps", [8, 10, 13])
def test_a_stack_goes_on_in_the_middle_of_a_round(n_steps: int) -> None:
    whole = Stack(maker(ToyHold)(**settings()), (3, 4, 5)).fit(DATA, 26, 26).state()[0]
    tensors, meta = Stack(maker(ToyHold)(**settings()), (3, 4, 5)).fit(DATA, n_steps, 26).state()
    again = Stack(maker(ToyHold)(**settings()), (3, 4, 5)).load_state(tensors, meta).fit(DATA, 26 - n_steps, 26).state()[0]
    assert largest_difference(again, whole) == (next(iter(whole)), 0)


def test_statistics_of_a_held_network_stay_too() -> None:
    encoder = {"hidden_units": [8], "normalization": "batch"}
    stack = Stack(maker(ToyHold, encoder=encoder)(**settings()), (3, 4)).fit(DATA, 3, 3)
    learner = stack.fit_.learner
    learner.held["critic"].copy_(torch.tensor([True, False]))
    before = learner.state()
    learner.minimise(stack.fit_.algorithm.critic_loss, "critic", stack.fit_.sampler(DATA).sample(3))
    moved = [name for name, t in learner.state().items() if not torch.equal(t[1:], before[name][1:])]
    assert any("running" in name for name in moved)
    assert {name for name in before if name.startswith(("live/critic/", "optimizer/critic/"))} >= set(moved)
    assert all(torch.equal(t[0], before[name][0]) for name, t in learner.state().items())


def test_others_have_no_held_rows_and_the_checkpoints_that_they_had() -> None:
    state = Stack(maker(DQN)(), (3, 4)).fit(DATA, 2, 2).state()[0]
    assert not [name for name in state if name.startswith("held/")]
    assert state["optimizer/critic/step"].shape == ()


def test_what_cannot_be_held_is_refused() -> None:
    class Undeclared(ToyHold):
        holds: ClassVar = ()

    class Unknown(ToyHold):
        holds: ClassVar = ("policy",)

    class PerSample(ToyHold):
        def misses(self, nets: Any, batch: Any, h: Any) -> Any:
            return self.critic_loss(nets, batch, h)[0].mean(0) > h.bound

    with pytest.raises(ConfigError, match=r"^Undeclared holds the network 'critic', which it has to name in `holds`\.$"):
        maker(Undeclared)().fit(DATA, 1)
    with pytest.raises(ConfigError, match=r"^Unknown may hold 'policy', and has only: critic\.$"):
        maker(Unknown)().fit(DATA, 1)
    for made in (maker(PerSample)(), Stack(maker(PerSample)(), (3, 4))):
        with pytest.raises(
            TypeError, match=r"^The test .*misses says whether one seed is held, with a bool of shape \(\), and gave .*16"
        ):
            made.fit(DATA, 1)


def test_adam_of_a_row_is_torchs_after_the_steps_that_the_row_made() -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(3, 4, 2, dtype=torch.float64, generator=generator)
    ours = RowOptimizer(Adam(amsgrad=True), {"w": start.clone()}, [1e-2] * 3, 3, holds=True)
    theirs = [row.clone() for row in start]
    optimizers = [torch.optim.Adam([row], lr=1e-2, amsgrad=True) for row in theirs]
    for step in range(8):
        gradient = torch.randn(3, 4, 2, dtype=torch.float64, generator=generator)
        held = torch.tensor([False, step in (0, 1, 4), step > 5])
        ours.step([gradient], step, held)
        for k in range(3):
            if not held[k]:
                theirs[k].grad = gradient[k]
                optimizers[k].step()
    assert ours.state()["step"].tolist() == [8, 5, 6]
    torch.testing.assert_close(ours.parameters[0], torch.stack(theirs), rtol=0, atol=1e-14)
