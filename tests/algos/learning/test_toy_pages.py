"""Pages of other kinds than those that there are, through the learner, the fit, stacks and states; see `toy_pages`."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from d3ray.algos import testing
from d3ray.algos.definition import loss
from d3ray.algos.export.portable import PortablePolicy
from d3ray.algos.imitation.bc import BC
from d3ray.algos.judging.held_out import HeldOut
from d3ray.algos.stack import Stack
from d3ray.algos.testing import largest_difference, maker, tiny_arrays, tiny_dataset
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError

from .toy_pages import ToyAnchored, ToyFQE, ToyMembers, ToyNoisy, ToySteps, mlp

SEEDS = (3, 4, 5)
DATA = tiny_dataset(discrete=False)
arrays = tiny_arrays(False)
SHIFTED = Dataset.from_arrays(**arrays | {part: 3 * arrays[part] + 1 for part in ("observations", "final_observations")})


def check_rows(page: Any, given: Any, n_steps: int, n_epoch: int = 20, pages: Any = None, **settings: Any) -> list[Any]:
    """Row k of a stack is seed k alone, also one that is taken out halfway and goes on by itself; gives those alone."""
    alone = []
    stack, half = (Stack(page(dtype="float64", **settings), SEEDS) for _ in range(2))
    stack.fit(given, n_steps, n_epoch)
    half.fit(given, n_steps // 2 - 1, n_epoch)
    for k, seed in enumerate(SEEDS):
        alone.append((pages[k] if pages else page)(dtype="float64", seed=seed, **settings).fit(given, n_steps, n_epoch))
        one = half.seed(k).fit(given, n_steps - n_steps // 2 + 1, n_epoch)
        for found in (stack.seed(k), one):
            name, gap = largest_difference(found.state()[0], alone[k].state()[0])
            assert gap < 1e-10, (name, gap)
    return alone


def check_resumes(page: Any, given: Any, n_steps: int, at: int, n_epoch: int = 20, **settings: Any) -> None:
    """Bit for bit, one seed and a stack."""
    for make in (lambda: page(seed=3, **settings), lambda: Stack(page(**settings), SEEDS)):
        whole = make().fit(given, n_steps, n_epoch).state()[0]
        again = make().load_state(*make().fit(given, at, n_epoch).state()).fit(given, n_steps - at, n_epoch).state()[0]
        name, gap = largest_difference(again, whole)
        assert gap == 0, name


# ---- a source that renews itself


@pytest.mark.long
def test_a_source_hears_of_each_epoch_before_it_and_sees_the_networks():
    check_rows(ToyAnchored, DATA, 50, observation_scaler="standard")
    check_resumes(ToyAnchored, DATA, 50, 29)
    check_resumes(ToyAnchored, DATA, 50, 40)  # where an epoch begins
    made, learnt = ToyAnchored(seed=3), []
    for epoch in made.fitter(DATA, 50, 20):
        at = made.state()[0]["sampler/anchor"]
        learnt.append((epoch.epoch, at))
    assert [epoch for epoch, _ in learnt] == [1, 2, 3]
    assert len({tuple(at.tolist()) for _, at in learnt}) == 3


def test_other_data_begin_a_source_anew():
    made = ToyAnchored(seed=3).fit(DATA, 25, 20)
    kept = made.state()[0]["sampler/anchor"]
    twin = ToyAnchored(seed=3).load_state(*made.state())
    twin.fit(tiny_dataset(discrete=False), 1, 20)  # the same, in another object
    assert torch.equal(twin.state()[0]["sampler/anchor"], kept)
    with pytest.raises(AssertionError, match="an epoch begins with between_epochs"):
        ToyAnchored(seed=3).load_state(*made.state()).fit(tiny_dataset(discrete=False, n=300), 1, 20)


# ---- a judge of policies


def judged(seed: int, **settings: Any) -> PortablePolicy:
    """A policy with a scaler of its own."""
    made = maker(BC, observation_scaler="min_max")(seed=seed, **settings).fit(SHIFTED, 3)
    return PortablePolicy(made.policy_module(), ["policy"], made.spec_)


def judge(*policies: nn.Module) -> Any:
    def make(**settings: Any) -> ToyFQE:
        made = maker(ToyFQE)(**settings)
        made.policies = policies
        return made

    return make


def test_rows_judge_policies_of_their_own():
    policies = [judged(seed, dtype="float64") for seed in (1, 5, 9)]
    pages = [judge(policy) for policy in policies]
    alone = check_rows(judge(*policies), SHIFTED, 40, pages=pages, observation_scaler="standard")
    same = judge(policies[0])(dtype="float64", seed=4, observation_scaler="standard").fit(SHIFTED, 40, 20)
    assert largest_difference(alone[1].state()[0], same.state()[0])[1] > 1e-6  # another policy, another value


def test_a_guest_sees_raw_observations_whatever_scaler_its_host_has():
    policy, seen = judged(1), []

    class Listens(ToyFQE):
        policies: ClassVar = (policy,)

        @loss("sample")
        def critic_loss(self, nets: Any, batch: Any, h: Any) -> Any:
            seen.append((batch.index, nets.judged(batch.next_observation)))
            return super().critic_loss(nets, batch, h)

    made = maker(Listens, observation_scaler="standard", action_scaler="min_max")(dtype="float64").fit(SHIFTED, 1)
    raw = made.fit_.sources.over(SHIFTED)
    plain = maker(ToyFQE)(dtype="float64")
    plain.policies = (policy,)
    batch = plain.fit(SHIFTED, 0).fit_.sources.over(SHIFTED).sample(0)
    assert torch.equal(batch.index, seen[0][0])
    assert torch.equal(batch.index, raw.sample(0).index)
    expected = made.config_.action_scaler.transform(policy(batch.next_observation.float()).double())
    torch.testing.assert_close(seen[0][1], expected.to(seen[0][1].dtype), rtol=0, atol=1e-5)


@pytest.mark.parametrize("stacked", [False, True])
def test_a_guest_is_left_alone_and_kept_nowhere(stacked):
    policy = judged(1)
    policy.requires_grad_(True)
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    first, second = (Stack(judge(policy)(), SEEDS) if stacked else judge(policy)(seed=3) for _ in range(2))
    first.fit(DATA, 10, 10)
    assert all(torch.equal(tensor, before[name]) for name, tensor in policy.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in policy.parameters())
    tensors, meta = first.state()
    assert {name.split("/")[1] for name in tensors if not name.startswith("hyper/")} == {"critic"}
    assert "judged" not in str(meta)
    second.fit(DATA, 5, 10)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(1)  # it goes on being trained
    second.fit(DATA, 5, 10)
    assert largest_difference(second.state()[0], tensors)[1] == 0


def test_a_row_that_was_kept_alone_has_its_own_guest_again():
    policies = [mlp(5, 4, 3).double() for _ in SEEDS]
    stack = Stack(judge(*policies)(dtype="float64"), SEEDS).fit(DATA, 9, 20)
    again = judge(*policies)(dtype="float64").load_state(*stack.seed(2).state()).fit(DATA, 9, 20)
    alone = judge(policies[2])(dtype="float64", seed=5).fit(DATA, 18, 20)
    assert largest_difference(again.state()[0], alone.state()[0])[1] < 1e-12
    whole = Stack(judge(*policies)(dtype="float64"), SEEDS).load_state(*stack.state()).fit(DATA, 9, 20)
    assert largest_difference(whole.seed(2).state()[0], again.state()[0])[1] < 1e-12
    assert "places" not in stack.state()[1]
    assert "places" not in Stack(maker(BC)(), SEEDS).fit(DATA, 1).seed(2).state()[1]


def test_guests_are_at_rest():
    torch.manual_seed(0)
    noisy = nn.Sequential(nn.Linear(5, 16), nn.Dropout(0.5), nn.BatchNorm1d(16), nn.Linear(16, 3))
    made, quiet = (judge(policy)(seed=1).fit(DATA, 8, 8) for policy in (noisy, noisy.eval()))
    assert largest_difference(made.state()[0], quiet.state()[0])[1] == 0


def test_guests_that_cannot_be_read_are_refused():
    class Clash(ToyFQE):
        def guests(self, config: Any, row: int) -> Any:
            return {"critic": mlp(5, 3)}

    class Some(ToyFQE):
        def guests(self, config: Any, row: int) -> Any:
            return {"judged": mlp(5, 3)} if row == 0 else {}

    for first, other in ((mlp(5, 4, 3), mlp(5, 6, 3)), (nn.Sequential(nn.Linear(5, 3), nn.Tanh()), nn.Sequential(nn.Linear(5, 3)))):
        with pytest.raises(ConfigError) as caught:
            Stack(judge(first, other)(), (3, 4)).fit(DATA, 1)
        assert str(caught.value) == "The guest 'judged' of row 1 is built otherwise than row 0's: stack those that are alike."
    with pytest.raises(ConfigError, match=r"^Clash has a network 'critic' of its own: call the guest otherwise\.$"):
        maker(Clash)().fit(DATA, 1)
    with pytest.raises(ConfigError, match=r"^Some has the guest 'judged' in some rows, and none in row 1\.$"):
        Stack(maker(Some)(), (3, 4)).fit(DATA, 1)


def test_a_judge_keeps_the_contract_as_far_as_it_applies():
    torch.manual_seed(1)

    class Judges(ToyFQE):
        policies: ClassVar = (mlp(5, 8, 3).double(),)  # else rows would differ by the rounding of their products

    testing.check_algorithm(Judges, onnx=False)
    assert not Judges.acts()
    assert BC.acts()


def test_a_judge_has_values_and_no_policy():
    made = judge(mlp(5, 3))(observation_scaler="standard").fit(DATA, 5, 5)
    assert made.predict_value(DATA.columns["observation"][:4], DATA.columns["action"][:4]).shape == (4,)
    assert set(HeldOut(DATA)(made, 1)) == {"critic_loss"}
    with pytest.raises(ConfigError, match=r"^ToyFQE has no policy\.$"):
        made.predict(DATA.columns["observation"][:4])
    assert not [name for epoch in made.fitter(DATA, 2, 2) for name in epoch.metrics if "saturation" in name]


# ---- kinds that repeat


@pytest.mark.parametrize("stacked", [False, True])
def test_calls_of_a_loss_in_a_step_draw_numbers_of_their_own(stacked):
    drawn = []

    class Listens(ToyNoisy):
        @loss("sample")
        def noisy_loss(self, nets: Any, batch: Any, h: Any) -> Any:
            values, metrics = super().noisy_loss(nets, batch, h)
            return values, {**metrics, "td_error": nets.noise("goal", batch.action.shape).mean(-1)}

        def imitate(self, learner: Any, batch: Any) -> None:
            super().imitate(learner, batch)
            drawn.append(tuple(learner.errors.flatten().tolist()))

    runner = Stack(maker(Listens)(), (3, 4)) if stacked else maker(Listens)(seed=3)
    runner.fit(DATA, 2, 2)
    assert len(drawn) == len(set(drawn)) == 6
    if stacked:
        alone = maker(Listens)(seed=4)
        rows, drawn[:] = list(drawn), []
        alone.fit(DATA, 2, 2)
        np.testing.assert_array_equal([row[16:] for row in rows], drawn)


@pytest.mark.long
def test_a_kind_that_repeats_does_the_same_in_a_stack_and_again():
    check_rows(ToyNoisy, DATA, 30)
    check_resumes(ToyNoisy, DATA, 30, 13)
    testing.check_algorithm(ToyNoisy, onnx=False)


# ---- axes


def weighed(batch: Any) -> Any:
    n = batch.index.shape
    return replace(batch, weight=torch.linspace(0.1, 2.0, batch.index.numel(), dtype=torch.float64).reshape(n))


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("stacked", [False, True])
def test_the_mean_over_steps_is_over_those_that_are_there(stacked, weights):
    made = Stack(maker(ToySteps)(dtype="float64"), (3, 4)) if stacked else maker(ToySteps)(dtype="float64", seed=3)
    made.fit(DATA, 2, 2)
    learner, algorithm = made.fit_.learner, made.fit_.algorithm
    batch = made.fit_.sampler(DATA).sample(0)
    batch = weighed(batch) if weights else batch
    assert not batch.mask[..., 3:].all()
    assert batch.mask.shape[-1] == 7
    _, found, *_ = learner.gradients(algorithm.imitation_loss, ("policy",), batch, learner.address(algorithm.imitation_loss))
    for k in range(2 if stacked else 1):
        one = made.seed(k) if stacked else made
        x, action, mask = (part[k] if stacked else part for part in (batch.observation, batch.action, batch.mask))
        policy, total, count = one.fit_.learner.modules["policy"], 0.0, 0.0
        for b in range(len(x)):
            weight = 1.0 if not weights else float((batch.weight[k] if stacked else batch.weight)[b])
            for t in range(3, 7):
                if mask[b, t]:
                    total += weight * float((action[b, t] - policy(x[b, t])).square().mean().detach())
                    count += weight
        assert float((found[k] if stacked else found).detach()) == pytest.approx(total / count, rel=1e-12)
    if not stacked:
        assert float(learner.value(algorithm.imitation_loss, batch)) == pytest.approx(total / count, rel=1e-12)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("stacked", [False, True])
def test_members_are_summed_and_samples_averaged(stacked, weights):
    made = Stack(maker(ToyMembers)(dtype="float64"), (3, 4)) if stacked else maker(ToyMembers)(dtype="float64", seed=3)
    made.fit(DATA, 2, 2)
    learner, algorithm = made.fit_.learner, made.fit_.algorithm
    batch = made.fit_.sampler(DATA).sample(0)
    batch = weighed(batch) if weights else batch
    _, found, *_ = learner.gradients(algorithm.member_loss, ("policy",), batch, learner.address(algorithm.member_loss))
    for k in range(2 if stacked else 1):
        one, total = made.seed(k) if stacked else made, 0.0
        x, action = (part[k] if stacked else part for part in (batch.observation, batch.action))
        for b in range(len(x)):
            weight = 1.0 if not weights else float((batch.weight[k] if stacked else batch.weight)[b])
            values = one.fit_.learner.modules["policy"](x[b]).detach()
            total += weight * sum(float(values[i] - action[b, 0]) ** 2 for i in range(3))
        assert float((found[k] if stacked else found).detach()) == pytest.approx(total / len(x), rel=1e-12)


@pytest.mark.parametrize(("page", "name"), [(ToySteps, "imitation_loss"), (ToyMembers, "member_loss")])
@pytest.mark.parametrize("stacked", [False, True])
def test_a_loss_of_another_rank_is_refused(page, name, stacked):
    original = getattr(page, name)

    @loss(original.axes)
    def flat(self: Any, nets: Any, batch: Any, h: Any) -> Any:
        values, metrics = original(self, nets, batch, h)
        return values.mean(0), metrics

    wrong = type("Wrong", (page,), {name: flat})
    runner = Stack(maker(wrong)(), (3, 4)) if stacked else maker(wrong)()
    with pytest.raises(
        TypeError, match=rf"^The loss .*flat is marked @loss\('{original.axes}'\) .*, and gave the shape \(\d+,\): mark it"
    ):
        runner.fit(DATA, 1)
    with pytest.raises(testing.ContractError, match="and gave the shape"):
        testing.check_losses_are_per_sample(maker(wrong))
