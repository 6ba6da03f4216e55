"""GCBC, GCIVL, GCIQL, HIQL, CRL and QRL: losses against loops in NumPy, the distance by hand, steps at once, and how they act."""

import numpy as np
import pytest
import torch

from d3ray.algos.goal_conditioned.crl import CRL
from d3ray.algos.goal_conditioned.gcbc import GCBC
from d3ray.algos.goal_conditioned.gciql import GCIQL
from d3ray.algos.goal_conditioned.gcivl import GCIVL
from d3ray.algos.goal_conditioned.hiql import HIQL
from d3ray.algos.goal_conditioned.qrl import QRL, Quasimetric
from d3ray.algos.nets import Nets
from d3ray.algos.networks.encoders import VectorEncoder
from d3ray.algos.testing import tiny_dataset
from d3ray.data.spec import Box

from ..loss_values import evaluate, mlp, networks, prepared

ALL = [GCBC, GCIVL, GCIQL, HIQL, CRL, QRL]


def reaching(algorithm, **settings):
    """As `prepared`, with a policy whose means pass the ends of an action about half of the time."""
    made, learner, batch = prepared(algorithm, **settings)
    size = np.abs(made.predict({key: part.numpy() for key, part in batch.observation.items()})).mean()
    with torch.no_grad():
        for parameter in learner.modules["policy"].head.parameters():
            parameter.div_(size)
    return made, learner, batch


class Samples:
    """A batch, sample by sample."""

    def __init__(self, batch):
        self.n = len(batch.action)
        self.seen, self.goal = (batch.observation[key].numpy() for key in ("observation", "goal"))
        self.next, self.action = batch.next_observation["observation"].numpy(), batch.action.numpy()
        self.reward, self.discount = batch.reward.numpy(), batch.discount.numpy()
        self.extra = {name: tensor.numpy() for name, tensor in batch.extra.items() if not isinstance(tensor, dict)}


def log_normal(mean, x):
    """Log N(x; mean, 1)."""
    return sum(np.log(np.exp(-0.5 * (a - m) ** 2) / np.sqrt(2 * np.pi)) for m, a in zip(mean, x, strict=True))


def beside(*parts):
    """What networks see: the goal first, for keys come by name."""
    return np.concatenate(parts)


def test_gcbc_is_minus_the_log_likelihood_of_a_normal_policy():
    made, learner, batch = reaching(GCBC)
    run, b = networks(learner), Samples(batch)
    wanted = [-log_normal(run("live", "policy", beside(b.extra["actor_goal"][i], b.seen[i])), b.action[i]) for i in range(b.n)]
    np.testing.assert_allclose(evaluate(made, learner, batch, made.actor_loss)[0], wanted, rtol=1e-10)


# ---- values of states


def ivl_value_losses(b, expectile, value):
    """L_V, where `value(kind, member, seen, goal)` gives V_i(s, g)."""
    wanted, signs = [], []
    for i in range(b.n):
        following = [value("target", k, b.next[i], b.goal[i]) for k in range(2)]
        here = np.mean([value("target", k, b.seen[i], b.goal[i]) for k in range(2)])
        advantage = b.reward[i] + b.discount[i] * min(following) - here
        weight = expectile if advantage >= 0 else 1 - expectile
        errors = [b.reward[i] + b.discount[i] * following[k] - value("live", k, b.seen[i], b.goal[i]) for k in range(2)]
        wanted.append(weight * sum(error**2 for error in errors))
        signs.append(advantage >= 0)
    return wanted, signs


def capped(alpha, near, far):
    return np.exp(min(alpha * (near - far), np.log(100.0)))


def test_gcivls_value_learns_an_expectile():
    made, learner, batch = prepared(GCIVL, expectile=0.8)
    run = networks(learner)
    wanted, signs = ivl_value_losses(Samples(batch), 0.8, lambda kind, k, s, g: run(kind, "value", beside(g, s), k)[0])
    np.testing.assert_allclose(evaluate(made, learner, batch, made.value_loss)[0], wanted, rtol=1e-10)
    assert 0 < sum(signs) < len(signs)


@pytest.mark.parametrize("alpha", [2.0, 4_000.0])
def test_gcivls_policy_does_what_came_nearer(alpha):
    made, learner, batch = reaching(GCIVL, alpha=alpha)
    run, b = networks(learner), Samples(batch)
    wanted, weights = [], []
    for i in range(b.n):
        goal = b.extra["actor_goal"][i]
        near, far = (np.mean([run("live", "value", beside(goal, s), k)[0] for k in range(2)]) for s in (b.next[i], b.seen[i]))
        weights.append(capped(alpha, near, far))
        wanted.append(-weights[-1] * log_normal(run("live", "policy", beside(goal, b.seen[i])), b.action[i]))
    np.testing.assert_allclose(evaluate(made, learner, batch, made.actor_loss)[0], wanted, rtol=1e-9)
    assert (max(weights) > 99.9) == (alpha > 100)


def test_hiqls_value_is_of_the_live_representation_and_so_is_its_target():
    made, learner, batch = prepared(HIQL, expectile=0.8)
    with torch.no_grad():
        learner.target["value"]["head.weight"].mul_(50)  # so that some steps gain more than they cost
    value = hiql_value(networks(learner))
    wanted, signs = ivl_value_losses(Samples(batch), 0.8, value)
    np.testing.assert_allclose(evaluate(made, learner, batch, made.value_loss)[0], wanted, rtol=1e-10)
    assert 0 < sum(signs) < len(signs)
    assert not any(name.startswith("target/representation") for name in learner.state())


def represented(run, seen, goal):
    """φ(s, g)."""
    x = run("live", "representation", beside(goal, seen))
    return x / np.sqrt(sum(x**2)) * np.sqrt(len(x))


def hiql_value(run):
    return lambda kind, k, seen, goal: run(kind, "value", beside(seen, represented(run, seen, goal)), k)[0]


def test_hiqls_policies_are_weighed_by_what_their_steps_gain():
    made, learner, batch = reaching(HIQL, low_alpha=2.0, high_alpha=5.0, subgoal_steps=3)
    run, b = networks(learner), Samples(batch)
    value = hiql_value(run)
    low, high = [], []
    for i in range(b.n):
        sub, goal, target = (b.extra[name][i] for name in ("low_goal", "high_goal", "high_target"))
        state = batch.extra["high_state"]["observation"][i].numpy()
        near, far = (np.mean([value("live", k, s, sub) for k in range(2)]) for s in (b.next[i], b.seen[i]))
        mean = run("live", "policy", beside(b.seen[i], represented(run, b.seen[i], sub)))
        low.append(-capped(2.0, near, far) * log_normal(mean, b.action[i]))
        near, far = (np.mean([value("live", k, s, goal) for k in range(2)]) for s in (state, b.seen[i]))
        mean = run("live", "high_policy", beside(goal, b.seen[i]))
        high.append(-capped(5.0, near, far) * log_normal(mean, represented(run, b.seen[i], target)))
    np.testing.assert_allclose(evaluate(made, learner, batch, made.low_loss)[0], low, rtol=1e-9)
    np.testing.assert_allclose(evaluate(made, learner, batch, made.high_loss)[0], high, rtol=1e-9)


# ---- values of actions


def critics(run, kind, seen, action, goal):
    return [run(kind, "critic", beside(goal, seen, action), k)[0] for k in range(2)]


def test_gciqls_value_and_critics_learn_as_iqls():
    made, learner, batch = prepared(GCIQL, expectile=0.8)
    with torch.no_grad():
        learner.modules["value"].head.bias.add_(np.median(evaluate(made, learner, batch, made.value_loss)[1]["advantage"]))
    run, b = networks(learner), Samples(batch)
    values, qs, signs = [], [], []
    for i in range(b.n):
        here, following = (run("live", "value", beside(b.goal[i], s))[0] for s in (b.seen[i], b.next[i]))
        u = min(critics(run, "target", b.seen[i], b.action[i], b.goal[i])) - here
        signs.append(u >= 0)
        values.append((0.8 if u >= 0 else 0.2) * u**2)
        goal = b.reward[i] + b.discount[i] * following
        qs.append(sum((q - goal) ** 2 for q in critics(run, "live", b.seen[i], b.action[i], b.goal[i])))
    assert 0 < sum(signs) < b.n
    np.testing.assert_allclose(evaluate(made, learner, batch, made.value_loss)[0], values, rtol=1e-10)
    np.testing.assert_allclose(evaluate(made, learner, batch, made.critic_loss)[0], qs, rtol=1e-10)


def test_gciqls_policy_climbs_the_least_critic():
    made, learner, batch = reaching(GCIQL, alpha=0.7)
    run, b = networks(learner), Samples(batch)
    worth, logs, cut = [], [], 0
    for i in range(b.n):
        goal = b.extra["actor_goal"][i]
        mean = run("live", "policy", beside(goal, b.seen[i]))
        cut += (np.abs(mean) > 1).sum()
        worth.append(min(critics(run, "live", b.seen[i], np.clip(mean, -1, 1), goal)))
        logs.append(log_normal(mean, b.action[i]))
    assert 0 < cut < b.action.size
    wanted = -np.array(worth) / (np.mean(np.abs(worth)) + 1e-6) - 0.7 * np.array(logs)
    np.testing.assert_allclose(evaluate(made, learner, batch, made.actor_loss)[0], wanted, rtol=1e-9)


@pytest.mark.parametrize("alpha", [2.0, 4_000.0])
def test_gciqls_policy_by_weights(alpha):
    made, learner, batch = reaching(GCIQL, alpha=alpha, extraction="awr")
    with torch.no_grad():
        learner.modules["value"].head.bias.sub_(0.1)  # so that some actions are better than the value
    run, b = networks(learner), Samples(batch)
    wanted, weights = [], []
    for i in range(b.n):
        goal = b.extra["actor_goal"][i]
        worth = min(critics(run, "live", b.seen[i], b.action[i], goal))
        weights.append(capped(alpha, worth, run("live", "value", beside(goal, b.seen[i]))[0]))
        wanted.append(-weights[-1] * log_normal(run("live", "policy", beside(goal, b.seen[i])), b.action[i]))
    np.testing.assert_allclose(evaluate(made, learner, batch, made.actor_loss)[0], wanted, rtol=1e-9)
    assert (max(weights) > 99.9) == (alpha > 100)


def halves(learner, seen, action, goal):
    """φ_i and ψ_i of each member of CRL's critics."""
    state = {name.replace("/state_head.", "/state.head."): x for name, x in learner.state().items()}
    state = {name.replace("/goal_head.", "/goal.head."): x for name, x in state.items()}
    found = []
    for half, x in (("state", beside(seen, action)), ("goal", goal)):
        named = {name.replace(f"/{half}.layers", f"/{half}.encoder.layers"): tensor for name, tensor in state.items()}
        own = {name.removeprefix(f"live/critic/{half}."): x for name, x in named.items() if name.startswith(f"live/critic/{half}.")}
        found.append([mlp(own, "", x, k) for k in range(2)])
    return found


def test_crls_critics_tell_a_samples_own_goal_from_others():
    made, learner, batch = prepared(CRL, latent_size=6)
    b = Samples(batch)
    both = [halves(learner, b.seen[i], b.action[i], b.goal[i]) for i in range(b.n)]
    wanted = 0.0
    for k in range(2):
        for i in range(b.n):
            for j in range(b.n):
                logit = both[i][0][k] @ both[j][1][k] / np.sqrt(6)
                wanted -= np.log(1 / (1 + np.exp(-logit if i == j else logit))) / b.n**2
    np.testing.assert_allclose(evaluate(made, learner, batch, made.critic_loss)[0], wanted, rtol=1e-10)


def test_crls_policy_climbs_the_least_critic():
    made, learner, batch = reaching(CRL, latent_size=6, alpha=0.7)
    run, b = networks(learner), Samples(batch)
    worth, logs = [], []
    for i in range(b.n):
        goal = b.extra["actor_goal"][i]
        mean = run("live", "policy", beside(goal, b.seen[i]))
        phi, psi = halves(learner, b.seen[i], np.clip(mean, -1, 1), goal)
        worth.append(min(phi[k] @ psi[k] / np.sqrt(6) for k in range(2)))
        logs.append(log_normal(mean, b.action[i]))
    wanted = -np.array(worth) / (np.mean(np.abs(worth)) + 1e-6) - 0.7 * np.array(logs)
    np.testing.assert_allclose(evaluate(made, learner, batch, made.actor_loss)[0], wanted, rtol=1e-9)


# ---- distances


def union(x, y):
    """How long the union of the intervals [x_k, y_k] is: gone through from the left, one merged interval after the other."""
    total, end = 0.0, -np.inf
    for begin, stop in sorted((a, b) for a, b in zip(x, y, strict=True) if a < b):
        total += max(stop - max(begin, end), 0.0)
        end = max(end, stop)
    return total


def slow_distance(x, y, mixture):
    lengths = [union(x[k : k + 8], y[k : k + 8]) for k in range(0, len(x), 8)]
    share = 1 / (1 + np.exp(-mixture))
    return share * np.mean(lengths) + (1 - share) * max(lengths)


def quasimetric(components=3):
    torch.manual_seed(0)
    made = Quasimetric(VectorEncoder(hidden_units=(8,)), Box(shape=(4,), dtype="float32"), components).double()
    with torch.no_grad():
        made.mixture.fill_(0.4)
    return made


def test_the_distance_is_the_length_of_a_union_of_intervals():
    made, rng = quasimetric(), np.random.default_rng(0)
    x, y = rng.standard_normal((2, 50, 24))
    y[:5] = x[:5] + np.abs(y[:5])  # all intervals there are
    y[5:10, ::2] = x[5:10, ::2]  # some are empty
    y[10] = x[10] - 1  # none is one
    found = made.between(*map(torch.from_numpy, (x, y))).detach().numpy()
    np.testing.assert_allclose(found, [slow_distance(a, b, 0.4) for a, b in zip(x, y, strict=True)], rtol=1e-12, atol=1e-12)
    assert found[10] == 0


def test_the_distance_is_a_quasimetric():
    made, rng = quasimetric(), torch.Generator().manual_seed(0)
    s, w, g = torch.randn((3, 500, 4), generator=rng, dtype=torch.float64).unbind()
    with torch.no_grad():
        assert (made(s, g) <= made(s, w) + made(w, g) + 1e-12).all()
        assert (made(s, s) == 0).all()
        assert (made(s, g) > 0).all()
        assert ((made(s, g) - made(g, s)).abs() > 1e-6).all()  # ways there and back differ


def latent(run, seen):
    return run("live", "distance", seen)


def test_qrl_pushes_goals_apart_and_holds_single_steps():
    made, learner, batch = prepared(QRL, n_components=3, margin=0.2)
    with torch.no_grad():
        learner.modules["distance"].head.weight.mul_(6)  # so that some steps are longer than 1
        learner.modules["multiplier"].log.fill_(0.5)
        learner.modules["distance"].mixture.fill_(0.4)
    run, b = networks(learner), Samples(batch)
    price, wanted, steps = np.exp(0.5), [], []
    for i in range(b.n):
        z, after, goal = (latent(run, s) for s in (b.seen[i], b.next[i], b.goal[i]))
        far, step = slow_distance(z, goal, 0.4), slow_distance(z, after, 0.4)
        guess = z + run("live", "dynamics", beside(z, b.action[i]))
        error = (slow_distance(after, guess, 0.4) + slow_distance(guess, after, 0.4)) / 2
        excess = max(step - 1, 0) ** 2
        steps.append(step)
        wanted.append(100 * np.log(1 + np.exp(5 - far / 100)) + price * excess + price * (0.2 - excess) + error)
    loss, metrics, _ = evaluate(made, learner, batch, made.distance_loss)
    np.testing.assert_allclose(loss, wanted, rtol=1e-10)
    np.testing.assert_allclose(metrics["step"], steps, rtol=1e-10)
    assert min(steps) < 1 < max(steps)


def test_qrls_multiplier_rises_where_steps_are_too_long():
    """Its gradient is of λ (ε² - excess) alone, and the distance's of λ excess."""
    made, learner, batch = prepared(QRL, n_components=3)
    with torch.no_grad():
        learner.modules["distance"].head.weight.mul_(20)
    key = learner.address(made.distance_loss)
    nets = Nets(learner.modules, {}, None, key, torch.float64, h=learner._h)
    loss, metrics = made.distance_loss(nets, batch, learner._h)
    (slope,) = torch.autograd.grad(loss.mean(), [learner.modules["multiplier"].log])
    excess = (metrics["step"] - 1).clamp(min=0).square().mean()
    price = learner.modules["multiplier"]()
    torch.testing.assert_close(slope, price * (0.05 - excess))
    assert slope < 0


def test_qrls_policy_goes_where_the_goal_is_near():
    made, learner, batch = reaching(QRL, n_components=3, alpha=0.7)
    run, b = networks(learner), Samples(batch)
    mixture = learner.modules["distance"].mixture.item()
    far, logs = [], []
    for i in range(b.n):
        goal = b.extra["actor_goal"][i]
        mean, z = run("live", "policy", beside(goal, b.seen[i])), latent(run, b.seen[i])
        guess = z + run("live", "dynamics", beside(z, np.clip(mean, -1, 1)))
        far.append(slow_distance(guess, latent(run, goal), mixture))
        logs.append(log_normal(mean, b.action[i]))
    wanted = np.array(far) / (np.mean(far) + 1e-6) - 0.7 * np.array(logs)
    np.testing.assert_allclose(evaluate(made, learner, batch, made.actor_loss)[0], wanted, rtol=1e-9)


# ---- steps, and acting


STEPS = {  # the networks that each loss moves, and the setting of their optimiser
    GCIVL: {"actor_loss": (["policy"], "actor"), "value_loss": (["value"], "value")},
    GCIQL: {"actor_loss": (["policy"], "actor"), "value_loss": (["value"], "value"), "critic_loss": (["critic"], "critic")},
    HIQL: {
        "low_loss": (["policy"], "actor"),
        "high_loss": (["high_policy"], "high"),
        "value_loss": (["value", "representation"], "value"),
    },
    CRL: {"actor_loss": (["policy"], "actor"), "critic_loss": (["critic"], "critic")},
    QRL: {"actor_loss": (["policy"], "actor"), "distance_loss": (["distance", "dynamics", "multiplier"], "distance")},
}


@pytest.mark.parametrize("algorithm", list(STEPS))
def test_a_step_is_one_of_all_networks_at_once(algorithm):
    """Each loss sees the others as the last step left them: plain gradients there, taken before anything moves."""
    steps = STEPS[algorithm]
    settings = {f"{name}_optimizer": "sgd" for _, name in steps.values()}
    settings |= {f"{name}_learning_rate": 0.03 for _, name in steps.values()}
    made, learner, batch = prepared(algorithm, **settings)
    targets = Nets(learner._targets, {}, None, learner.address(made.actor_loss), torch.float64)
    wanted = {}
    for loss, (names, _) in steps.items():
        nets = Nets(learner.modules, {}, targets, learner.address(getattr(made, loss)), torch.float64, h=learner._h)
        each = getattr(made, loss)(nets, batch, learner._h)[0]
        parameters = {f"{name}/{key}": p for name in names for key, p in learner.modules[name].named_parameters()}
        mean = (each.sum(0) if each.ndim == 2 else each).mean()
        for (name, tensor), slope in zip(parameters.items(), torch.autograd.grad(mean, list(parameters.values())), strict=True):
            wanted[f"live/{name}"] = (tensor - 0.03 * slope).detach()
    before = learner.state()
    before = {name: before[name].clone() for name in before if name.startswith("target/")}
    learner.update(batch)
    after = learner.state()
    for name, tensor in wanted.items():
        np.testing.assert_allclose(after[name], tensor, rtol=1e-12, atol=1e-13, err_msg=name)
    for name, tensor in before.items():  # targets follow what the step left
        moved = 0.995 * tensor + 0.005 * wanted[name.replace("target/", "live/", 1)]
        np.testing.assert_allclose(after[name], moved, rtol=1e-10, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("algorithm", ALL)
def test_actions_are_the_policys_mean_clipped(algorithm):
    made, learner, _ = reaching(algorithm)
    run, seen = networks(learner), tiny_dataset(discrete=False).columns["observation"][:14].astype(np.float64)
    seen, goal, wanted = seen[:7], seen[7:], []
    for s, g in zip(seen, goal, strict=True):
        shown = beside(g, s)
        if algorithm is HIQL:
            sub = run("live", "high_policy", shown)
            shown = beside(s, sub / np.linalg.norm(sub) * np.sqrt(len(sub)))
        wanted.append(np.clip(run("live", "policy", shown), -1, 1))
    found = made.predict({"observation": seen, "goal": goal})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert (np.abs(wanted) == 1).any()
