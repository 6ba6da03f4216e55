"""The behaviour model, MMD, and losses of BCQ, PLAS, BEAR, SPOT and MCQ against loops in NumPy; the best of some actions."""

import numpy as np
import pytest
import torch

from d3ray.algos.actor_critic.sac import SAC
from d3ray.algos.behaviour.bcq import BCQ
from d3ray.algos.behaviour.bear import BEAR
from d3ray.algos.behaviour.best_of_samples import _numbers
from d3ray.algos.behaviour.mcq import MCQ
from d3ray.algos.behaviour.plas import PLAS
from d3ray.algos.behaviour.plas_with_perturbation import PLASWithPerturbation
from d3ray.algos.behaviour.spot import SPOT
from d3ray.algos.export.golden import nudged
from d3ray.algos.export.graphs import portable
from d3ray.algos.losses.mmd import mmd
from d3ray.algos.stack import Stack
from d3ray.algos.testing import check_export_acts_as_predict, maker, tiny_arrays, tiny_dataset
from d3ray.data.dataset import Dataset

from .. import slow_losses as slow
from ..loss_values import as_tensors, evaluate, networks, prepared


def beside(*parts):
    return np.concatenate(parts)


def mixed(values, lam):
    return lam * min(values) + (1 - lam) * max(values)


def perturbed(run, kind, seen, latent, scale):
    """BCQ's action for one latent, of the live or the target perturbation."""
    action = np.tanh(run("live", "vae_decoder", beside(seen, np.clip(latent, -0.5, 0.5))))
    return np.clip(action + scale * np.tanh(run(kind, "policy", beside(seen, action))), -1, 1)


@pytest.mark.parametrize("beta", [0.5, 0.0])
def test_the_behaviour_model_rebuilds_actions_and_keeps_to_its_prior(beta):
    made, learner, batch = prepared(BCQ, beta=beta, latent_size=4)
    run, (loss, metrics, nets) = as_tensors(networks(learner)), evaluate(made, learner, batch, made.imitation_loss)
    noise = nets.noise("latent", (len(batch.reward), 4))
    expected = [slow.rebuilt(run, s, a, [z], beta) for s, a, z in zip(batch.observation, batch.action, noise, strict=True)]
    np.testing.assert_allclose(loss, expected, rtol=1e-10)
    assert set(metrics) == {"reconstruction", "divergence"}


@pytest.mark.parametrize("kernel", ["laplacian", "gaussian"])
def test_mmd_is_a_mean_over_pairs(kernel):
    rng = np.random.default_rng(0)
    x, y, sigma = rng.normal(size=(3, 2, 4)), rng.normal(1, 2, size=(5, 2, 4)), 0.7

    def mean(a, b, at):
        power = 1 if kernel == "laplacian" else 2
        return np.mean([np.exp(-(np.abs(p[at] - q[at]) ** power).sum() / (2 * sigma)) for p in a for q in b])

    expected = [np.sqrt(mean(x, x, b) + mean(y, y, b) - 2 * mean(x, y, b) + 1e-6) for b in range(2)]
    found = mmd(torch.from_numpy(x), torch.from_numpy(y), kernel, torch.tensor(sigma, dtype=torch.float64))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    same = mmd(torch.from_numpy(x), torch.from_numpy(x), kernel, torch.tensor(sigma))
    np.testing.assert_allclose(same, 1e-3, rtol=1e-6)  # the least that there is: √1e-6


def test_bcqs_goal_is_the_best_of_what_the_behaviour_might_do():
    made, learner, batch = prepared(BCQ, n_target_samples=3, lam=0.3, action_flexibility=0.4, n_critics=3)
    run, (loss, _, nets) = networks(learner), evaluate(made, learner, batch, made.critic_loss)
    noise, expected = nets.noise("next action", (3, len(batch.reward), 6)).numpy(), []
    for i, seen in enumerate(batch.next_observation.numpy()):
        actions = [perturbed(run, "target", seen, noise[k, i], 0.4) for k in range(3)]
        best = max(mixed([run("target", "critic", beside(seen, a), m)[0] for m in range(3)], 0.3) for a in actions)
        goal = batch.reward[i].item() + batch.discount[i].item() * best
        mine = beside(batch.observation[i].numpy(), batch.action[i].numpy())
        expected.append(sum((run("live", "critic", mine, m)[0] - goal) ** 2 for m in range(3)))
    np.testing.assert_allclose(loss, expected, rtol=1e-10)


def test_bcqs_perturbation_climbs_the_first_critic():
    made, learner, batch = prepared(BCQ, action_flexibility=0.4)
    run, (loss, _, nets) = networks(learner), evaluate(made, learner, batch, made.actor_loss)
    noise = nets.noise("action", (1, len(batch.reward), 6)).numpy()[0]
    seen = batch.observation.numpy()
    actions = [perturbed(run, "live", s, z, 0.4) for s, z in zip(seen, noise, strict=True)]
    expected = [-run("live", "critic", beside(s, a), 0)[0] for s, a in zip(seen, actions, strict=True)]
    np.testing.assert_allclose(loss, expected, rtol=1e-10)


def test_bcq_acts_by_the_best_of_the_same_candidates():
    made, learner, batch = prepared(BCQ, n_action_samples=5, action_flexibility=0.4)
    run, seen, latents = networks(learner), batch.observation.numpy()[:9], _numbers(5, 6)
    wanted = []
    for s in seen:
        actions = [perturbed(run, "live", s, z, 0.4) for z in latents]
        wanted.append(max(actions, key=lambda a, s=s: run("live", "critic", beside(s, a), 0)[0]))
    np.testing.assert_allclose(made.predict(seen), wanted, rtol=1e-7)  # the space's float32
    draws = np.stack([made.sample_action(seen) for _ in range(3)])
    assert (draws.std(0) > 0).any()


def test_a_row_acts_by_its_own_coefficients():
    """A coefficient of a row moves its actions, and those of what is made of it."""
    make, dataset = maker(BCQ, n_action_samples=3), tiny_dataset(discrete=False)
    stack = Stack(make(), (3, 4), [{}, {"action_flexibility": 1.0}]).fit(dataset, 3, 3)
    alone = make(seed=4, action_flexibility=1.0).fit(dataset, 3, 3)
    seen = dataset.columns["observation"][:8]
    np.testing.assert_allclose(stack.seed(1).predict(seen), alone.predict(seen), atol=1e-4)
    assert stack.seed(1).fit_.coefficients().action_flexibility == 1.0


@pytest.mark.parametrize(("still", "says"), [((0, 1, 2), "and the actions of 'still'"), ((1,), "and entries 1 of the actions")])
def test_data_without_variety_are_warned_of(still, says):
    arrays = tiny_arrays(False)
    arrays["actions"][:, list(still)] = 0.25
    with pytest.warns(UserWarning, match=f"BCQ keeps to the behaviour that its data show, {says}"):
        maker(BCQ)().fit(Dataset.from_arrays(**arrays, name="still"), 1)


def latent_action(run, kind, seen, scale=None):
    """PLAS's action, of the live or the target policy; with a perturbation where it has a scale."""
    action = np.tanh(run("live", "vae_decoder", beside(seen, 2 * np.tanh(run(kind, "policy", seen)))))
    if scale is None:
        return action
    return np.clip(action + scale * np.tanh(run(kind, "perturbation", beside(seen, action))), -1, 1)


@pytest.mark.parametrize(("algorithm", "scale"), [(PLAS, None), (PLASWithPerturbation, 0.4)])
def test_plas_acts_and_aims_through_the_decoder(algorithm, scale):
    settings = {"lam": 0.3, "n_critics": 3, **({} if scale is None else {"action_flexibility": scale})}
    made, learner, batch = prepared(algorithm, **settings)
    run, expected, climbed = networks(learner), [], []
    for i, seen in enumerate(batch.next_observation.numpy()):
        action = latent_action(run, "target", seen, scale)
        following = mixed([run("target", "critic", beside(seen, action), m)[0] for m in range(3)], 0.3)
        goal = batch.reward[i].item() + batch.discount[i].item() * following
        here = batch.observation[i].numpy()
        mine = beside(here, batch.action[i].numpy())
        expected.append(sum((run("live", "critic", mine, m)[0] - goal) ** 2 for m in range(3)))
        climbed.append(-run("live", "critic", beside(here, latent_action(run, "live", here, scale)), 0)[0])
    np.testing.assert_allclose(evaluate(made, learner, batch, made.critic_loss)[0], expected, rtol=1e-10)
    np.testing.assert_allclose(evaluate(made, learner, batch, made.actor_loss)[0], climbed, rtol=1e-10)
    seen = batch.observation.numpy()[:5]
    np.testing.assert_allclose(made.predict(seen), [latent_action(run, "live", s, scale) for s in seen], rtol=1e-7)


def test_plas_leaves_the_behaviour_as_it_is_after_the_warm_up():
    made, learner, batch = prepared(PLAS, warmup_steps=4)  # it has done nine
    assert [made.schedule(step) for step in (0, 3, 4)] == [("imitate",), ("imitate",), ("critic", "actor", "targets")]
    before = {name: tensor for name, tensor in learner.state().items() if name.startswith("live/vae")}
    learner.update(batch)
    assert all(torch.equal(learner.state()[name], tensor) for name, tensor in before.items())


def squashed(mean, log_std, noise):
    """A draw of BEAR's and MCQ's policies, before tanh, and its log density after it."""
    raw = mean + np.exp(log_std) * noise
    density = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1 - np.tanh(raw) ** 2)
    return raw, density.sum()


def normal(run, seen):
    output = run("live", "policy", seen)
    return output[:3], np.clip(output[3:], -20, 2)


def test_bears_goal_is_the_best_draw_with_its_entropy():
    made, learner, batch = prepared(BEAR, n_target_samples=3, lam=0.3, n_critics=3, initial_temperature=0.4)
    run, (loss, _, nets) = networks(learner), evaluate(made, learner, batch, made.critic_loss)
    noise, expected = nets.noise("next action", (3, *batch.action.shape)).numpy(), []
    temperature = 0.4 * np.exp(learner.state()["live/temperature/log"].item())
    for i, seen in enumerate(batch.next_observation.numpy()):
        best, entropy = -np.inf, 0.0
        for k in range(3):
            raw, density = squashed(*normal(run, seen), noise[k, i])
            value = mixed([run("target", "critic", beside(seen, np.tanh(raw)), m)[0] for m in range(3)], 0.3)
            best, entropy = max((best, entropy), (value, -density))
        goal = batch.reward[i].item() + batch.discount[i].item() * (best + temperature * entropy)
        mine = beside(batch.observation[i].numpy(), batch.action[i].numpy())
        expected.append(sum((run("live", "critic", mine, m)[0] - goal) ** 2 for m in range(3)))
    np.testing.assert_allclose(loss, expected, rtol=1e-10)


def discrepancies(run, nets, batch, sigma):
    """M of each state with two draws a side, in loops."""
    latent = nets.noise("behaviour", (2 * len(batch.reward), 6)).numpy().reshape(2, -1, 6)
    noise, found = nets.noise("policy", (2, *batch.action.shape)).numpy(), []
    for i, seen in enumerate(batch.observation.numpy()):
        mean, log_std = normal(run, seen)
        ours = [mean + np.exp(log_std) * noise[k, i] for k in range(2)]
        theirs = [run("live", "vae_decoder", beside(seen, np.clip(latent[k, i], -0.5, 0.5))) for k in range(2)]

        def mean_kernel(x, y):
            return np.mean([np.exp(-np.abs(a - b).sum() / (2 * sigma)) for a in x for b in y])

        within = mean_kernel(ours, ours) + mean_kernel(theirs, theirs)
        found.append(np.sqrt(within - 2 * mean_kernel(ours, theirs) + 1e-6))
    return np.array(found)


@pytest.mark.parametrize("learn_temperature", [True, False])
def test_bear_pays_for_what_the_behaviour_does_not_do(learn_temperature):
    made, learner, batch = prepared(
        BEAR, n_mmd_action_samples=2, mmd_sigma=0.5, alpha_threshold=0.2, initial_alpha=3.0, learn_temperature=learn_temperature
    )
    run, state, (loss, metrics, nets) = networks(learner), learner.state(), evaluate(made, learner, batch, made.actor_loss)
    excess = discrepancies(run, nets, batch, 0.5) - 0.2
    temperature = np.exp(state["live/temperature/log"].item()) if learn_temperature else 1.0
    alpha, noise, expected = 3 * np.exp(state["live/alpha/log"].item()), nets.noise("action", batch.action.shape).numpy(), []
    for i, seen in enumerate(batch.observation.numpy()):
        raw, density = squashed(*normal(run, seen), noise[i])
        value = min(run("live", "critic", beside(seen, np.tanh(raw)), m)[0] for m in range(2))
        price = -temperature * (density - 3) if learn_temperature else 0.0
        expected.append(temperature * density - value + price)  # α (M - ε) and L_α cancel in the loss, not in its gradients
    np.testing.assert_allclose(loss, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(metrics["mmd"], excess + 0.2, rtol=1e-10)
    nears, _, nets = evaluate(made, learner, batch, made.matching_loss)
    np.testing.assert_allclose(nears, alpha * (discrepancies(run, nets, batch, 0.5) - 0.2), rtol=1e-10)


@pytest.mark.parametrize(("log", "excess", "slope"), [(0.0, 0.1, -0.1), (0.0, -0.1, 0.1), (10.0, 0.1, 0.0), (-5.0, -0.1, 0.0)])
def test_alpha_grows_with_the_excess_and_keeps_to_its_bounds(log, excess, slope):
    made, learner, batch = prepared(BEAR)
    with torch.no_grad():
        learner.live["alpha"]["log"].fill_(log)
    nets = evaluate(made, learner, batch, made.actor_loss)[2]
    loss = made.alpha_loss(nets, torch.full((4,), excess, dtype=torch.float64), learner._h).mean()
    (gradient,) = torch.autograd.grad(loss, [learner.live["alpha"]["log"]])
    np.testing.assert_allclose(gradient, slope * np.exp(log), rtol=1e-10)


def test_alpha_stops_beyond_a_bound_and_comes_back():
    _, learner, batch = prepared(BEAR, alpha_optimizer="sgd", alpha_learning_rate=0.1, alpha_threshold=100.0, warmup_steps=0)
    with torch.no_grad():
        learner.live["alpha"]["log"].fill_(-4.9)
    seen = []
    for threshold in (100.0, -100.0):
        learner.set_hyper("alpha_threshold", [threshold])
        for _ in range(6):
            learner.update(batch)
        seen.append(learner.live["alpha"]["log"].item())
    assert -5.1 < seen[0] < -5  # without a bound it would be at -5.3
    assert seen[1] > -4.9


@pytest.mark.parametrize("n", [1, 3])
def test_spot_pays_for_actions_that_the_model_finds_unlikely(n):
    made, learner, batch = prepared(SPOT, n_density_samples=n, support_weight=0.7, beta=0.3)
    run, (loss, metrics, nets) = as_tensors(networks(learner)), evaluate(made, learner, batch, made.actor_loss)
    noise = nets.noise("latent", (n, len(batch.reward), 6)).transpose(0, 1)
    expected, prices = slow.supported(run, slow.samples(batch), noise, 0.7, 0.3)
    np.testing.assert_allclose(loss, expected, rtol=1e-10)
    np.testing.assert_allclose(metrics["unlikeliness"], prices, rtol=1e-10)


@pytest.mark.parametrize("floor", [True, False])
def test_mcq_holds_the_policys_actions_at_the_best_of_the_behaviour(floor):
    made, learner, batch = prepared(MCQ, n_action_samples=2, lam=0.6, floor_at_zero=floor, n_critics=3)
    run, (loss, metrics, nets) = as_tensors(networks(learner)), evaluate(made, learner, batch, made.critic_loss)
    rows = len(batch.reward)
    noise, latents = nets.noise("action", (2, 2 * rows, 3)), nets.noise("behaviour", (2, 2 * rows, 6))
    plain = SAC.critic_loss(made, nets, batch, learner._h)[0].sum(0).detach().numpy()
    both = [*batch.observation, *batch.next_observation]
    found = [slow.held(run, seen, noise[:, i], latents[:, i], 3, floor) for i, seen in enumerate(both)]
    held, pseudo = (np.array(part).reshape(2, rows) for part in zip(*found, strict=True))
    np.testing.assert_allclose(loss, 0.6 * plain + 0.4 * held.mean(0), rtol=1e-10)
    np.testing.assert_allclose(metrics["supported"], pseudo.mean(0), rtol=1e-10)
    assert floor == bool((pseudo >= 0).all())


def test_bear_acts_by_the_best_of_the_same_draws():
    made, learner, batch = prepared(BEAR, n_action_samples=5)
    run, seen, wanted = networks(learner), batch.observation.numpy()[:9], []
    for s in seen:
        actions = [np.tanh(squashed(*normal(run, s), z)[0]) for z in _numbers(5, 3)]
        wanted.append(max(actions, key=lambda a, s=s: run("live", "critic", beside(s, a), 0)[0]))
    np.testing.assert_allclose(made.predict(seen), wanted, rtol=1e-7)  # the space's float32


@pytest.mark.parametrize("algorithm", [BCQ, BEAR])
def test_the_best_of_some_actions_can_be_exported(algorithm):
    """For any batch size; the golden actions are those whose choice rounding cannot change."""
    make = maker(algorithm, n_action_samples=20)
    check_export_acts_as_predict(make)
    policy = portable(make().fit(tiny_dataset(discrete=False), 2, 2).policy())
    observation = {"observation": policy.golden["batch_32/observation"]}
    np.testing.assert_allclose(policy.module.act_on(nudged(observation, 1e-4)), policy.golden["batch_32/action"], atol=2e-3)
