"""IDQL and Diffusion-QL: noise, losses and samplers against loops in NumPy and an exact solution, and by what they act."""

import math

import numpy as np
import onnxruntime
import pytest
import torch

from d3ray.algos.export.package import read_package, read_record
from d3ray.algos.export.packing import read_torch_policy, write_package
from d3ray.algos.generative.diffusion_ql import DiffusionQL
from d3ray.algos.generative.idql import IDQL
from d3ray.algos.networks.diffusion import Diffusion, TimeEmbedding, retained
from d3ray.algos.networks.encoders import VectorEncoder
from d3ray.algos.online.actors import Weights
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.errors import ConfigError
from d3ray.data.spec import Box

from ..loss_values import evaluate, networks, prepared

BOTH = [IDQL, DiffusionQL]
SEEN = tiny_dataset(discrete=False).columns["observation"][:7]
VP5 = [math.exp(-0.1 / 5 * k - 0.5 * 9.9 * k**2 / 25) for k in range(1, 6)]  # Σ (2i - 1) up to k is k²


def beside(*parts):
    return np.concatenate(parts)


def mish(x):
    return x * np.tanh(np.log(1 + np.exp(x)))


def reaching(algorithm, **settings):
    """As `prepared`, with noise that is predicted so large that actions pass their ends, and an average that is another network."""
    made, learner, batch = prepared(algorithm, **settings)
    return made, averaged(learner), batch


def averaged(learner):
    with torch.no_grad():
        learner.modules["diffusion"].head.weight.mul_(3)
        for tensor in learner.target["diffusion"].values():
            if tensor.ndim > 1:
                tensor.add_(0.2 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(3), dtype=tensor.dtype))
    return learner


class Slow:
    """ε(s, x, k) of a network, and what is made with it."""

    def __init__(self, learner, kind, levels=VP5):
        self.run, self.state, self.kind, self.levels = networks(learner), learner.state(), kind, levels

    def __call__(self, seen, x, k):
        part = {name.removeprefix(f"{self.kind}/diffusion/time."): value.numpy() for name, value in self.state.items()}
        waves = k * part["frequency"]
        time = beside(np.cos(waves), np.sin(waves))
        time = mish(time @ part["layers.0.weight"] + part["layers.0.bias"])
        return self.run(self.kind, "diffusion", beside(seen, x, time @ part["layers.2.weight"] + part["layers.2.bias"]))

    def start(self, seen, x, k):
        left = self.levels[k]
        return np.clip((x - math.sqrt(1 - left) * self(seen, x, k)) / math.sqrt(left), -1, 1)

    def ancestral(self, seen, noise, clip):
        """Ho et al. 2020, algorithm 2, step by step."""
        x, n = noise[0], len(self.levels)
        for at, k in enumerate(range(n - 1, -1, -1)):
            level, before = self.levels[k], self.levels[k - 1] if k > 0 else 1.0
            alpha = level / before
            beta = 1 - alpha
            if clip == "each":
                x = (x - beta / math.sqrt(1 - level) * self(seen, x, k)) / math.sqrt(alpha)
                sigma = math.sqrt(beta)
            else:
                x0 = self.start(seen, x, k)
                x = math.sqrt(before) * beta / (1 - level) * x0 + math.sqrt(alpha) * (1 - before) / (1 - level) * x
                sigma = math.sqrt(beta * (1 - before) / (1 - level))
            if k > 0:
                x = x + sigma * noise[at + 1]
            if clip == "each":
                x = np.clip(x, -1, 1)
        return np.clip(x, -1, 1)

    def solved(self, seen, x, times):
        """DPM-Solver++ 2M, Lu et al. 2022, algorithm 2, with λ, α and σ as they stand there."""
        lambdas = {k: math.log(math.sqrt(self.levels[k]) / math.sqrt(1 - self.levels[k])) for k in times}
        guesses = []
        for i in range(1, len(times)):
            s, t = times[i - 1], times[i]
            h = lambdas[t] - lambdas[s]
            guesses.append(self.start(seen, x, s))
            d = guesses[-1]
            if i > 1:
                r = (lambdas[s] - lambdas[times[i - 2]]) / h
                d = (1 + 1 / (2 * r)) * guesses[-1] - 1 / (2 * r) * guesses[-2]
            sigma = math.sqrt(1 - self.levels[t]) / math.sqrt(1 - self.levels[s])
            x = sigma * x - math.sqrt(self.levels[t]) * (math.exp(-h) - 1) * d
        return self.start(seen, x, times[-1])


# ---- noise


def test_schedules_by_hand():
    np.testing.assert_allclose(retained("vp", 5), VP5, rtol=1e-12)
    assert retained("vp", 5)[-1] == pytest.approx(math.exp(-5.05))
    np.testing.assert_allclose(retained("linear", 3), [0.9999, 0.9999 * 0.98995, 0.9999 * 0.98995 * 0.98], rtol=1e-12)
    first = (math.cos(0.508 / 1.008 * math.pi / 2) / math.cos(0.008 / 1.008 * math.pi / 2)) ** 2
    np.testing.assert_allclose(retained("cosine", 2), [first, first * 0.001], rtol=1e-12)  # β is at most 0.999
    assert retained("linear", 1) == [0.9999]


@pytest.mark.parametrize("algorithm", BOTH)
def test_the_noise_within_a_noisy_action_is_predicted(algorithm):
    made, learner, batch = prepared(algorithm)
    slow, (loss, _, nets) = Slow(learner, "live"), evaluate(made, learner, batch, made.diffusion_loss)
    noise = nets.noise("noise", batch.action.shape).numpy()
    times = np.floor(nets.uniform("time", (len(batch.action),)).numpy() * 5).astype(int)
    expected, noisy = [], []
    for seen, action, z, k in zip(batch.observation.numpy(), batch.action.numpy(), noise, times, strict=True):
        noisy.append(math.sqrt(VP5[k]) * action + math.sqrt(1 - VP5[k]) * z)
        expected.append(np.mean((slow(seen, noisy[-1], k) - z) ** 2))
    found = learner.modules["diffusion"].noised(batch.action, torch.from_numpy(noise), torch.from_numpy(times))
    np.testing.assert_allclose(found, noisy, rtol=1e-5, atol=1e-7)  # ᾱ is a float32
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert set(times) == {0, 1, 2, 3, 4}


# ---- samplers


@pytest.mark.parametrize("clip", ["start", "each"])
def test_ancestral_sampling_goes_back_step_by_step(clip):
    _, learner, _ = reaching(DiffusionQL)
    slow, noise = Slow(learner, "live"), np.random.default_rng(0).standard_normal((5, 7, 3))
    with torch.no_grad():
        found = learner.modules["diffusion"].ancestral(torch.from_numpy(SEEN).double(), torch.from_numpy(noise), clip=clip)
    wanted = [slow.ancestral(seen.astype(np.float64), noise[:, i], clip) for i, seen in enumerate(SEEN)]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert 0 < (np.abs(wanted) == 1).sum() < 21


@pytest.mark.parametrize(("n", "times"), [(1, [4]), (2, [4, 0]), (3, [4, 2, 0]), (5, [4, 3, 2, 1, 0])])
def test_the_solver_is_dpm_solver_pp_2m(n, times):
    _, learner, _ = reaching(DiffusionQL)
    slow, noise = Slow(learner, "live"), np.random.default_rng(0).standard_normal((7, 3))
    with torch.no_grad():
        found = learner.modules["diffusion"].solved(torch.from_numpy(SEEN).double(), torch.from_numpy(noise), n)
    wanted = [slow.solved(seen.astype(np.float64), z, times) for seen, z in zip(SEEN, noise, strict=True)]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


class Gaussian(Diffusion):
    """What predicts the noise of actions that are N(0.1, 0.2²), without an error."""

    def __init__(self):
        space = Box(shape=(1,), dtype="float32")
        super().__init__(VectorEncoder(hidden_units=(4,)), TimeEmbedding(), space, 1, "vp", 1000)
        self.double().retained = torch.tensor(self.levels, dtype=torch.float64)

    def forward(self, observation, x, k):
        left = self.retained[k.long()][:, None]
        return (1 - left).sqrt() * (x - left.sqrt() * 0.1) / (left * 0.04 + 1 - left)


def test_the_solver_comes_to_the_exact_solution_as_a_second_order_method_does():
    """Along the flow of Song et al. 2021 a normal x keeps its quantile; twice the steps leave about a quarter of the error."""
    made, x = Gaussian(), torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    first, last = made.levels[0], made.levels[-1]
    share = math.sqrt((first * 0.04 + 1 - first) / (last * 0.04 + 1 - last))
    at_0 = math.sqrt(first) * 0.1 + share * (x - math.sqrt(last) * 0.1)
    exact = 0.1 + 0.04 * math.sqrt(first) / (first * 0.04 + 1 - first) * (at_0 - math.sqrt(first) * 0.1)
    errors = [(made.solved(torch.zeros(9, 1), x, n) - exact).abs().max().item() for n in (160, 320, 640)]
    assert errors[2] < 1e-3
    assert errors[0] > 3.3 * errors[1] > 10.9 * errors[2]


def test_ancestral_sampling_has_the_datas_mean_and_deviation():
    made, noise = Gaussian(), torch.randn((1000, 4000, 1), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for clip in ("start", "each"):
        found = made.ancestral(torch.zeros(4000, 1), noise if clip == "start" else 0.9 * noise[:1000], clip=clip)
        assert found.mean().item() == pytest.approx(0.1, abs=0.02)
        if clip == "start":
            assert found.std().item() == pytest.approx(0.2, abs=0.01)


def test_more_steps_of_the_solver_than_there_are_times_are_refused():
    with pytest.raises(ConfigError, match=r"sampler_steps is 6, and at most diffusion_steps \(5\) times are known"):
        IDQL(sampler_steps=6).check_settings()


# ---- Diffusion-QL


def values(run, kind, seen, action):
    return [run(kind, "critic", beside(seen, action), member)[0] for member in range(2)]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("steps", [None, 3])
def test_the_critics_goal_is_at_the_best_of_some_draws_of_the_average(n, steps):
    made, learner, batch = reaching(DiffusionQL, n_target_samples=n, sampler_steps=steps)
    run, slow, (loss, _, nets) = networks(learner), Slow(learner, "target"), evaluate(made, learner, batch, made.critic_loss)
    size, draws = len(batch.action), 1 if steps else 5
    noise = nets.noise("next action", (draws, n * size, 3)).numpy()
    expected = []
    for i, seen in enumerate(batch.next_observation.numpy()):
        worth = []
        for m in range(n):
            own = noise[:, m * size + i]
            action = slow.solved(seen, own[0], [4, 2, 0]) if steps else slow.ancestral(seen, own, "start")
            worth.append(values(run, "target", seen, action))
        goal = batch.reward[i].item() + batch.discount[i].item() * min(max(one[j] for one in worth) for j in range(2))
        mine = values(run, "live", batch.observation[i].numpy(), batch.action[i].numpy())
        expected.append(sum((value - goal) ** 2 for value in mine))
    np.testing.assert_allclose(loss, expected, rtol=1e-4)


@pytest.mark.parametrize("approximate", [False, True])
def test_the_policy_keeps_to_the_data_and_climbs_one_of_the_critics(approximate):
    made, learner, batch = reaching(DiffusionQL, eta=0.7, approximate=approximate)
    run, slow, first = networks(learner), Slow(learner, "live"), set()
    for step in (9, 10, 11, 12, 13, 14):  # which one is drawn for each batch
        learner.step = step
        loss, metrics, nets = evaluate(made, learner, batch, made.actor_loss)
        likeness = made.diffusion_loss(nets, batch, learner._h)[0].detach().numpy()
        noise, size = nets.noise("action", (5, len(batch.action), 3)).numpy(), len(batch.action)
        if approximate:
            z = nets.noise("approximate noise", batch.action.shape).numpy()
            times = np.floor(nets.uniform("approximate time", (size,)).numpy() * 5).astype(int)
        worth = []
        for i, seen in enumerate(batch.observation.numpy()):
            if approximate:
                left = VP5[times[i]]
                noisy = math.sqrt(left) * batch.action[i].numpy() + math.sqrt(1 - left) * z[i]
                action = slow.start(seen, noisy, times[i])
            else:
                action = slow.ancestral(seen, noise[:, i], "start")
            worth.append(values(run, "live", seen, action))
        which = 0 if nets.uniform("critic", (1,)).item() > 0.5 else 1
        first.add(which)
        climbed, other = np.array(worth)[:, which], np.array(worth)[:, 1 - which]
        np.testing.assert_allclose(loss, likeness - 0.7 * climbed / np.mean(np.abs(other)), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(metrics["value"], climbed, rtol=1e-4, atol=1e-6)
    assert first == {0, 1}


def test_one_of_some_draws_acts_by_their_values():
    made, learner, _ = reaching(DiffusionQL)
    run, slow, rng = networks(learner), Slow(learner, "live"), np.random.default_rng(0)
    noise, choice, wanted = rng.standard_normal((7, 4, 5, 3)), rng.random((7, 4)), []
    for seen, z, u in zip(SEEN.astype(np.float64), noise, choice, strict=True):
        actions = [slow.ancestral(seen, one, "start") for one in z]
        worth = np.array([min(values(run, "live", seen, a)) for a in actions])
        wanted.append(actions[np.argmax(worth - np.log(-np.log(u)))])  # Gumbel's way to a draw of softmax(worth)
    with torch.no_grad():
        numbers = {"draws": torch.from_numpy(noise), "choice": torch.from_numpy(choice)}
        found = made.act(made.fit_.nets(), torch.from_numpy(SEEN).double(), {}, numbers)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_the_average_begins_late_and_moves_at_every_fifth_step():
    made = DiffusionQL().build_with_dataset(tiny_dataset(discrete=False))
    moves = [step for step in range(1_020) if "average" in made.schedule(step)]
    assert moves == [1_000, 1_005, 1_010, 1_015]
    assert made.schedule(1_000) == ("critic", "actor", "average", "targets")


# ---- IDQL acts by its average


def best_of(learner, kind, noise):
    """The best of some actions each, by min_i Q_i."""
    run, slow, found = networks(learner), Slow(learner, kind), []
    for seen, z in zip(SEEN.astype(np.float64), noise, strict=True):
        actions = [slow.ancestral(seen, one, "each") for one in z]
        found.append(max(actions, key=lambda a, seen=seen: min(values(run, "live", seen, a))))
    return np.array(found)


def test_idql_acts_by_the_best_of_its_averages_actions():
    made, learner, _ = reaching(IDQL)
    noise = np.random.default_rng(0).standard_normal((7, 4, 5, 3))
    with torch.no_grad():
        numbers = {"action": torch.from_numpy(noise)}
        found = made.act(made.fit_.nets(), torch.from_numpy(SEEN).double(), {}, numbers)[0].numpy()
    np.testing.assert_allclose(found, best_of(learner, "target", noise), rtol=1e-4, atol=1e-5)
    assert np.abs(found - best_of(learner, "live", noise)).max() > 0.1


def test_the_average_acts_after_saving_in_packages_and_in_plain_onnx(tmp_path):
    made = maker(IDQL)(seed=2).fit(tiny_dataset(discrete=False), 9)
    learner = averaged(made.fit_.learner)
    policy = made.policy()
    noise = policy.drawn(policy.start(7))
    wanted = made.predict(SEEN)
    np.testing.assert_allclose(wanted, best_of(learner, "target", noise["noise/action"]), rtol=1e-3, atol=1e-4)
    made.save(tmp_path / "saved")
    again = IDQL.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.predict(SEEN), wanted)
    write_package(made, tmp_path / "package")
    (port,) = read_record(tmp_path / "package").noise_inputs
    assert (port.name, port.shape) == ("noise/action", ("batch", 4, 5, 3))
    session = onnxruntime.InferenceSession(tmp_path / "package" / "policy.onnx", providers=["CPUExecutionProvider"])
    (action,) = session.run(["action"], {"observation": SEEN, **noise})
    np.testing.assert_allclose(action, wanted, atol=1e-5)
    np.testing.assert_allclose(read_package(tmp_path / "package").predict(SEEN), wanted, atol=1e-5)
    np.testing.assert_allclose(read_torch_policy(tmp_path / "package").predict(SEEN), wanted, atol=1e-5)


def test_actors_act_by_the_average():
    made, _, _ = reaching(IDQL)
    other = maker(IDQL)(dtype="float64", seed=2).fit(tiny_dataset(discrete=False), 1)
    assert (other.predict(SEEN) != made.predict(SEEN)).any()
    Weights.of(made.fit_).into(other.fit_)
    np.testing.assert_array_equal(other.predict(SEEN), made.predict(SEEN))
