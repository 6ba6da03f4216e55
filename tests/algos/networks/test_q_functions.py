"""Q-functions against their equations, written with loops in NumPy over single samples, fractions and members."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from d3ray.algos import testing
from d3ray.algos.actor_critic.td3 import TD3
from d3ray.algos.nets import Nets
from d3ray.algos.networks.encoders import VectorEncoder
from d3ray.algos.networks.q_functions import FQF, IQN, QR, Mean, Values, as_values, quantiles
from d3ray.algos.networks.q_functions.iqn import ImplicitCritic
from d3ray.algos.networks.q_functions.quantiles import quantile_huber
from d3ray.algos.networks.training import Pass, under_way
from d3ray.algos.values.dqn import DQN
from d3ray.data.random import fold, root_key, uniform
from d3ray.data.spec import Box

KINDS = {
    "mean": Mean(),
    "qr": QR(n_quantiles=3),
    "iqn": IQN(n_quantiles=4, n_target_quantiles=5, n_greedy_quantiles=3, embed_size=6),
    "fqf": FQF(n_quantiles=4, embed_size=6, entropy_coefficient=0.3),
}
B, MEMBERS, ACTIONS = 5, 2, 3


def critic_of(kind, *, discrete=False, members=MEMBERS, share_encoder=False, hidden=(7,), seed=0):
    torch.manual_seed(seed)
    space = Box(shape=(4,), dtype="float32")
    make = kind.discrete if discrete else kind.continuous
    made = make(VectorEncoder(hidden_units=hidden), space, ACTIONS, members, share_encoder=share_encoder).double()
    if isinstance(kind, FQF):
        torch.nn.init.normal_(made.proposal.weight)  # as they begin, widths are nearly equal, and little would be tested
    return made


def inputs(discrete, seed=1):
    rng = np.random.default_rng(seed)
    action = rng.integers(0, ACTIONS, B) if discrete else rng.uniform(-1, 1, (B, ACTIONS))
    return torch.from_numpy(rng.normal(size=(B, 4))), torch.from_numpy(action)


def a_pass(live=True):
    return under_way(Pass(root_key(3), torch.float64, live, None, target=not live))


def affine(layer, member, x):
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    if weight.ndim == 3:
        weight, bias = weight[member], bias[member, 0]
    return np.array([sum(x[j] * weight[j, k] for j in range(len(x))) + bias[k] for k in range(weight.shape[1])])


def features_of(critic, member, observation, action=None):
    """ψ of one sample, with the encoder's one hidden layer."""
    x = observation.numpy() if action is None else np.concatenate([observation.numpy(), action.numpy()])
    layer = next(part for part in critic.encoder.modules() if type(part).__name__ == "Linear")
    return np.maximum(affine(layer, member, x), 0)


def quantile_at(critic, member, features, fraction, output):
    """Z_τ: the head at ψ ⊙ φ(τ)."""
    cosines = np.array([np.cos(np.pi * i * fraction) for i in range(1, critic.embed_size + 1)])
    return affine(critic.head, member, features * np.maximum(affine(critic.embed, member, cosines), 0))[output]


def slow_huber(ours, fractions, goals):
    total = 0.0
    for goal in goals:
        for tau, value in zip(fractions, ours, strict=True):
            u = goal - value
            total += abs(tau - float(u < 0)) * (u * u / 2 if abs(u) <= 1 else abs(u) - 0.5)
    return total / len(goals)


# ---- the loss


def test_quantile_huber_of_cases_worked_by_hand():
    ours = torch.tensor([[[0.0], [2.0]]], dtype=torch.float64)  # one member, two quantiles, one sample
    fractions = torch.tensor([[0.25], [0.75]], dtype=torch.float64)
    # goal 1: u = 1, -1 and 0.25 · 0.5 + |0.75 - 1| · 0.5; goal 3: u = 3, 1 and 0.25 · 2.5 + 0.75 · 0.5
    assert quantile_huber(ours, fractions, Values(torch.tensor([[1.0]]))).item() == 0.25
    assert quantile_huber(ours, fractions, Values(torch.tensor([[3.0]]))).item() == 1.0
    both = Values(torch.tensor([[1.0], [3.0]]))
    assert quantile_huber(ours, fractions, both).item() == 0.625
    assert quantile_huber(ours, fractions, Values(both.atoms, torch.tensor([[0.75], [0.25]]))).item() == 0.4375


@pytest.mark.parametrize("block", [2**19, 1, 70])
@pytest.mark.parametrize("own_goals", [False, True])
def test_quantile_huber_is_the_double_loop_and_so_is_its_slope(monkeypatch, block, own_goals):
    monkeypatch.setattr(quantiles, "_BLOCK", block)
    rng = np.random.default_rng(0)
    ours = torch.from_numpy(2 * rng.normal(size=(2, 3, 4))).requires_grad_()
    fractions, goal = rng.uniform(size=(2, 3, 4)), 2 * rng.normal(size=(2, 5, 4) if own_goals else (5, 4))

    def slow(values):
        goals = goal if own_goals else [goal, goal]
        return np.array([[slow_huber(values[m, :, b], fractions[m, :, b], goals[m][:, b]) for b in range(4)] for m in range(2)])

    loss = quantile_huber(ours, torch.from_numpy(fractions), Values(torch.from_numpy(goal)))
    np.testing.assert_allclose(loss.detach().numpy(), slow(ours.detach().numpy()), rtol=1e-12)
    (gradient,) = torch.autograd.grad(loss.sum(), ours)
    for at in np.ndindex(2, 3, 4):
        step = np.zeros((2, 3, 4))
        step[at] = 1e-6
        difference = (slow(ours.detach().numpy() + step).sum() - slow(ours.detach().numpy() - step).sum()) / 2e-6
        assert gradient[at].item() == pytest.approx(difference, abs=1e-8)


# ---- the critics


@pytest.mark.parametrize("share_encoder", [False, True])
@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_critics_are_their_equations(name, discrete, share_encoder):
    critic = critic_of(KINDS[name], discrete=discrete, share_encoder=share_encoder)
    observation, action = inputs(discrete)
    goal = torch.from_numpy(np.random.default_rng(5).normal(size=(1 if name == "mean" else 6, B)))
    with a_pass():
        loss, metrics = critic.td_loss(observation, action, Values(goal))
    with a_pass(live=False):
        atoms = critic.distribution(observation, action).atoms
    value = critic(observation) if discrete else critic(observation, action)
    drawn = {n: uniform(fold(root_key(3), "fractions"), (1, B, n), torch.float64)[0].numpy() for n in (4, 5)}
    for m in range(MEMBERS):
        for b in range(B):
            psi = features_of(critic, m, observation[b], None if discrete else action[b])
            output = int(action[b]) if discrete else 0
            outputs = range(ACTIONS) if discrete else [0]
            entropy = 0.0
            if name == "mean":
                q = [affine(critic.head, m, psi)[k] for k in outputs]
                target, u = [q[output]], goal[0, b].item() - q[output]
                expected = u * u if not discrete else u * u / 2 if abs(u) <= 1 else abs(u) - 0.5
            elif name == "qr":
                all_of = affine(critic.head, m, psi).reshape(-1, 3)
                q, target = all_of.mean(-1), all_of[output]
                expected = slow_huber(target, [1 / 6, 3 / 6, 5 / 6], goal[:, b].numpy())
            elif name == "iqn":
                q = [np.mean([quantile_at(critic, m, psi, tau, k) for tau in (1 / 6, 3 / 6, 5 / 6)]) for k in outputs]
                target = [quantile_at(critic, m, psi, tau, output) for tau in drawn[5][b]]
                ours = [quantile_at(critic, m, psi, tau, output) for tau in drawn[4][b]]
                expected = slow_huber(ours, drawn[4][b], goal[:, b].numpy())
            else:
                logits = affine(critic.proposal, m, psi)
                widths = np.exp(logits) / np.exp(logits).sum()
                middles = [widths[:i].sum() + widths[i] / 2 for i in range(4)]
                q = [sum(p * quantile_at(critic, m, psi, t, k) for p, t in zip(widths, middles, strict=True)) for k in outputs]
                target = [quantile_at(critic, m, psi, tau, output) for tau in middles]
                entropy = -sum(p * np.log(p) for p in widths)
                expected = slow_huber(target, middles, goal[:, b].numpy()) - 0.3 * entropy
            np.testing.assert_allclose(value[m, b].detach().numpy(), q if discrete else q[0], rtol=1e-11, atol=1e-14)
            np.testing.assert_allclose(atoms[m, :, b].detach().numpy(), target, rtol=1e-11, atol=1e-14)
            assert loss[m, b].item() == pytest.approx(expected, rel=1e-11)
    assert metrics["td_error"].shape == metrics["q_value"].shape == (B,)


def test_fractions_are_drawn_alike_whatever_else_a_pass_draws():
    found = []
    for settings in ({}, {"dropout_rate": 0.5}):
        encoder = VectorEncoder(hidden_units=(7,), **settings)
        critic = KINDS["iqn"].continuous(encoder, Box(shape=(4,), dtype="float32"), ACTIONS, MEMBERS).double()
        with a_pass():
            found.append(critic.fractions(critic.features(*inputs(discrete=False))))
    assert torch.equal(*found)


@pytest.mark.parametrize("name", KINDS)
def test_losses_slope_as_their_differences_do(name):
    """Every parameter; but FQF's proposal has another loss, and its encoder sees nothing of how fractions move with it."""
    critic = critic_of(KINDS[name], hidden=(3,))
    observation, action = inputs(discrete=False)
    goal = Values(torch.zeros(1, B, dtype=torch.float64) - 3)

    def loss():
        with a_pass():
            return critic.td_loss(observation, action, goal)[0].sum()

    left_out = ("proposal", "encoder") if name == "fqf" else ()
    parameters = {n: p for n, p in critic.named_parameters() if not n.startswith(left_out)}
    gradients = torch.autograd.grad(loss(), list(parameters.values()))
    for parameter, gradient in zip(parameters.values(), gradients, strict=True):
        at = (0,) * parameter.ndim
        kept = parameter[at].item()
        with torch.no_grad():
            parameter[at] = kept + 1e-6
            above = loss().item()
            parameter[at] = kept - 1e-6
            below = loss().item()
            parameter[at] = kept
        assert gradient[at].item() == pytest.approx((above - below) / 2e-6, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("share_encoder", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_the_first_members_alone_are_the_first_of_all(name, share_encoder, members):
    critic = critic_of(KINDS[name], members=members, share_encoder=share_encoder)
    observation, action = inputs(discrete=False)
    whole = critic(observation, action)
    assert whole.shape == (members, B)
    for n in range(1, members + 1):
        torch.testing.assert_close(critic(observation, action, n), whole[:n], rtol=1e-12, atol=1e-14)


def test_one_pass_chooses_and_values():
    def best(values):
        return values.mean(0).argmax(-1)

    for kind in KINDS.values():
        critic = critic_of(kind, discrete=True)
        observation, _ = inputs(discrete=True)
        with a_pass(live=False):
            atoms = critic.distribution(observation, best).atoms
        with a_pass(live=False):
            torch.testing.assert_close(atoms, critic.distribution(observation, best(critic(observation))).atoms)


def test_fractions_are_drawn_in_losses_and_stand_still_at_rest(monkeypatch):
    observation, action = inputs(discrete=False)
    seen = []
    for config in (KINDS["iqn"], IQN(n_quantiles=4, n_target_quantiles=4, share_fractions=True)):
        critic = critic_of(config)
        monkeypatch.setattr(
            critic, "embedded", lambda f, members, of=critic: (seen.append(f), ImplicitCritic.embedded(of, f, members))[1]
        )
        modules, key = {"critic": critic}, root_key(0)
        nets = Nets(modules, {}, Nets(modules, {}, None, key, torch.float64), key, torch.float64)
        nets.critic.td_loss(observation, action, as_values(torch.zeros(B).double()))
        nets.target.critic.distribution(observation, action)
        nets.critic.distribution(observation, action)
        live, target, again = seen[-3:]
        assert live.shape[-1] == config.n_quantiles
        assert target.shape[-1] == config.n_target_quantiles
        assert len({live.flatten()[0].item(), target.flatten()[0].item(), again.flatten()[0].item()}) == 3
        assert live.shape[1] == (1 if config.share_fractions else B)
        assert len(live.unique()) == live.numel()
        rest = Nets(modules, {}, None, None, torch.float64)
        torch.testing.assert_close(
            rest.critic.distribution(observation, action).mean, rest.critic(observation, action), rtol=1e-12, atol=1e-14
        )


def test_shared_fractions_are_those_of_every_sample():
    shared, own = (IQN(n_quantiles=4, embed_size=6, share_fractions=share) for share in (True, False))
    observation, action = inputs(discrete=False)
    one, other = critic_of(shared), critic_of(own)
    fractions = torch.rand(1, 1, 4, dtype=torch.float64)
    psi = one.features(observation, action)
    torch.testing.assert_close(
        one.quantiles(psi, fractions), other.quantiles(psi, fractions.expand(1, B, 4)), rtol=1e-12, atol=1e-14
    )


# ---- FQF's proposal


def rising_critic():
    """A critic whose quantile function rises, as one must for ∂W₁ / ∂τ: φ(τ) = relu(1 - cos πτ), head and ψ positive."""
    critic = critic_of(FQF(n_quantiles=4, embed_size=1, entropy_coefficient=0.0), members=1, hidden=(3,))
    with torch.no_grad():
        critic.embed.weight.fill_(-1.0)
        critic.embed.bias.fill_(1.0)
        critic.head.weight.abs_()
        for name, parameter in critic.encoder.named_parameters():
            if name.endswith("bias"):
                parameter.fill_(4.0)
    return critic


def test_the_proposals_gradient_is_the_wasserstein_distances():
    critic = rising_critic()
    observation, action = inputs(discrete=False)
    with torch.no_grad():
        critic.proposal.bias.copy_(torch.tensor([0.9, -0.7, 0.1, 0.4]))

    def distance():
        """Σ_i ∫ |Z_ω - Z_τ̂i| dω over [τ_(i-1), τ_i], by 4,000 midpoints each, of every sample."""
        total = 0.0
        for b in range(B):
            psi = features_of(critic, 0, observation[b], action[b])
            logits = affine(critic.proposal, 0, psi)
            widths = np.exp(logits) / np.exp(logits).sum()
            weight = critic.head.weight.detach().numpy().reshape(-1)
            scale = (psi * weight).sum()  # Z_τ = scale (1 - cos πτ) + bias
            edges = np.concatenate([[0], np.cumsum(widths)])
            for low, high in pairwise(edges):
                omega = low + (np.arange(4000) + 0.5) / 4000 * (high - low)
                gap = np.abs(np.cos(np.pi * omega) - np.cos(np.pi * (low + high) / 2))
                total += scale * gap.mean() * (high - low)
        return total

    loss, _ = critic.td_loss(observation, action, as_values(torch.zeros(B, dtype=torch.float64)))
    gradient = torch.autograd.grad(loss.sum(), critic.proposal.bias)[0].reshape(-1)
    assert gradient.abs().max() > 0.05
    for i in range(4):
        moved = []
        for step in (1e-4, -1e-4):
            with torch.no_grad():
                critic.proposal.bias[..., i] += step
            moved.append(distance())
            with torch.no_grad():
                critic.proposal.bias[..., i] -= step
        assert gradient[i].item() == pytest.approx((moved[0] - moved[1]) / 2e-4, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("discrete", [False, True])
def test_neither_loss_of_fqf_moves_what_is_the_others(discrete):
    critic = critic_of(KINDS["fqf"], discrete=discrete)
    observation, action = inputs(discrete)
    goal = Values(torch.from_numpy(np.random.default_rng(5).normal(size=(6, B))))
    names, parameters = zip(*critic.named_parameters(), strict=True)
    whole = torch.autograd.grad(critic.td_loss(observation, action, goal)[0].mean(), parameters)
    middles, widths = critic.proposed(critic.features(observation, None if discrete else action))
    taken = action if discrete else None

    psi = critic.features(observation, None if discrete else action)
    values = critic.quantiles(psi, middles, taken)
    regression = quantile_huber(values, middles.transpose(-1, -2), goal).mean()
    alone = torch.autograd.grad(regression, parameters, allow_unused=True)
    logs = critic.proposal(psi.detach()).log_softmax(-1)
    steps = logs.exp().cumsum(-1)
    edges = critic.quantiles(psi, widths.cumsum(-1)[..., :-1], taken)
    slope = (2 * edges - values[:, :-1] - values[:, 1:]).detach()
    proposal = ((slope * steps[..., :-1].transpose(-1, -2)).sum(-2) + 0.3 * (logs.exp() * logs).sum(-1)).mean()
    other = torch.autograd.grad(proposal, parameters, allow_unused=True)
    for name, both, one, two in zip(names, whole, alone, other, strict=True):
        mine, not_mine = (two, one) if name.startswith("proposal.") else (one, two)
        assert not_mine is None
        torch.testing.assert_close(both, mine, rtol=1e-11, atol=1e-14)


def test_an_optimiser_of_its_own_steps_the_proposal():
    still = {"name": "fqf", "n_quantiles": 4, "embed_size": 4}
    moving = {**still, "proposal_learning_rate": 1e-2}
    dataset = testing.tiny_dataset(discrete=False)
    for settings, moves in ((still, False), (moving, True)):
        made = testing.maker(TD3, q_function=settings)(dtype="float64").fit(dataset, 0)
        before = made.state()[0]
        after = made.fit(dataset, 3).state()[0]
        change = {n: (after[n] - before[n]).abs().max().item() for n in after if n.startswith("live/critic/")}
        proposal = max(change[n] for n in change if "/proposal." in n)
        assert (proposal > 1e-3) if moves else (0 < proposal < 1e-7)
        assert min(change[n] for n in change if "/proposal." not in n) > 1e-4
    assert any(n.startswith("optimizer/critic:proposal./") for n in after)


# ---- in an algorithm


def test_dqn_values_the_chosen_action_by_the_member_of_the_least_expectation():
    dataset = testing.tiny_dataset(discrete=True)
    made = testing.maker(DQN, q_function={"name": "qr", "n_quantiles": 4}, n_critics=2, learning_rate=1e-2)(dtype="float64").fit(
        dataset, 9
    )
    learner, batch = made.fit_.learner, made.fit_.sampler(dataset).sample(9)
    key = learner.address(made.critic_loss)
    nets = Nets(learner.modules, {}, Nets(learner._targets, {}, None, key, torch.float64), key, torch.float64)
    loss = made.critic_loss(nets, batch, learner._h)[0].detach().numpy()

    def atoms(critic, observation):  # [members, actions, N]
        return critic.distributions(observation[None]).atoms[..., 0].detach().numpy()

    picks = set()
    for b in range(16):
        target = atoms(learner._targets["critic"], batch.next_observation[b])
        best = int(target.mean((0, 2)).argmax())
        member = int(target[:, best].mean(-1).argmin())
        picks.add(member)
        goal = batch.reward[b].item() + batch.discount[b].item() * target[member, best]
        ours = atoms(learner.modules["critic"], batch.observation[b])
        for m in range(2):
            expected = slow_huber(ours[m, int(batch.action[b])], [1 / 8, 3 / 8, 5 / 8, 7 / 8], goal)
            assert loss[m, b] == pytest.approx(expected, rel=1e-11)
    assert picks == {0, 1}
