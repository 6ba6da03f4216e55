"""FBC, FQL and IFQL: losses against loops in NumPy, the flow's integration by hand, steps at once, and how they act."""

import json
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
import torch

from d3ray.algos.export.graphs import onnx_bytes, portable
from d3ray.algos.export.package import read_package, read_record
from d3ray.algos.export.packing import write_package
from d3ray.algos.generative.fbc import FBC
from d3ray.algos.generative.fql import FQL
from d3ray.algos.generative.ifql import IFQL
from d3ray.algos.nets import Nets
from d3ray.algos.networks.vector_fields import integrated
from d3ray.algos.testing import maker, tiny_arrays, tiny_dataset
from d3ray.data.dataset import Dataset

from ..loss_values import evaluate, networks, prepared

ALL = [FBC, FQL, IFQL]
PORT = {FBC: "noise", FQL: "noise", IFQL: "action"}
SEEN = tiny_dataset(discrete=False).columns["observation"][:7]


def beside(*parts):
    return np.concatenate(parts)


def enlarge(learner):
    """Makes last layers so large that flow and policy pass the ends of an action."""
    with torch.no_grad():
        for name in {"flow", "policy"} & set(learner.modules):
            learner.modules[name].head.weight.mul_(12)


def reaching(algorithm, **settings):
    made, learner, batch = prepared(algorithm, **settings)
    enlarge(learner)
    return made, learner, batch


def flowed(run, seen, z, steps):
    """Where noise ends, by Euler's method."""
    x = z
    for k in range(steps):
        x = x + run("live", "flow", beside(seen, x, [k / steps])) / steps
    return np.clip(x, -1, 1)


def values(run, kind, seen, action, n):
    return [run(kind, "critic", beside(seen, action), member)[0] for member in range(n)]


# ---- losses


@pytest.mark.parametrize("algorithm", ALL)
def test_the_velocity_goes_from_noise_to_the_datas_action(algorithm):
    made, learner, batch = prepared(algorithm)
    run, (loss, _, nets) = networks(learner), evaluate(made, learner, batch, made.flow_loss)
    noise, times = nets.noise("noise", batch.action.shape).numpy(), nets.uniform("time", (len(batch.action), 1)).numpy()
    expected = []
    for seen, action, z, t in zip(batch.observation.numpy(), batch.action.numpy(), noise, times, strict=True):
        velocity = run("live", "flow", beside(seen, (1 - t) * z + t * action, t))
        expected.append(np.mean((velocity - (action - z)) ** 2))
    np.testing.assert_allclose(loss, expected, rtol=1e-10)
    assert times.min() < 0.1
    assert times.max() > 0.9


@pytest.mark.parametrize(("target_value", "reduce"), [("mean", np.mean), ("min", min)])
def test_fqls_goal_is_at_an_action_that_the_policy_draws(target_value, reduce):
    made, learner, batch = reaching(FQL, target_value=target_value, n_critics=3)
    run, (loss, _, nets) = networks(learner), evaluate(made, learner, batch, made.critic_loss)
    noise, expected, cut = nets.noise("next action", batch.action.shape).numpy(), [], 0
    for i, seen in enumerate(batch.next_observation.numpy()):
        raw = run("live", "policy", beside(seen, noise[i]))
        action, cut = np.clip(raw, -1, 1), cut + (np.abs(raw) > 1).sum()
        goal = batch.reward[i].item() + batch.discount[i].item() * reduce(values(run, "target", seen, action, 3))
        mine = values(run, "live", batch.observation[i].numpy(), batch.action[i].numpy(), 3)
        expected.append(sum((value - goal) ** 2 for value in mine))
    np.testing.assert_allclose(loss, expected, rtol=1e-10)
    assert 0 < cut < batch.action.numel()


@pytest.mark.parametrize("normalize_q", [False, True])
def test_fqls_policy_climbs_the_critics_and_keeps_to_the_flow(normalize_q):
    made, learner, batch = reaching(FQL, normalize_q=normalize_q, alpha=0.7, flow_steps=3)
    run, (loss, metrics, nets) = networks(learner), evaluate(made, learner, batch, made.actor_loss)
    distances, worths = [], []
    for seen, z in zip(batch.observation.numpy(), nets.noise("action", batch.action.shape).numpy(), strict=True):
        action = run("live", "policy", beside(seen, z))
        distances.append(np.mean((action - flowed(run, seen, z, 3)) ** 2))  # before the policy's action is cut off
        worths.append(np.mean(values(run, "live", seen, np.clip(action, -1, 1), 2)))
    size = np.mean(np.abs(worths)) if normalize_q else 1
    np.testing.assert_allclose(loss, 0.7 * np.array(distances) - np.array(worths) / size, rtol=1e-10)
    np.testing.assert_allclose(metrics["distance"], distances, rtol=1e-10)
    np.testing.assert_allclose(metrics["value"], worths, rtol=1e-10)


def test_ifqls_critics_learn_as_iqls():
    made, learner, batch = prepared(IFQL)
    run, rows = networks(learner), range(len(batch.reward))
    seen, following = batch.observation.numpy(), batch.next_observation.numpy()
    u = [min(values(run, "target", seen[i], batch.action[i].numpy(), 2)) - run("live", "value", seen[i])[0] for i in rows]
    expected = [(0.9 if x > 0 else 0.1) * x**2 for x in u]
    np.testing.assert_allclose(evaluate(made, learner, batch, made.value_loss)[0], expected, rtol=1e-10)
    expected = []
    for i in rows:
        goal = batch.reward[i].item() + batch.discount[i].item() * run("live", "value", following[i])[0]
        expected.append(sum((q - goal) ** 2 for q in values(run, "live", seen[i], batch.action[i].numpy(), 2)))
    np.testing.assert_allclose(evaluate(made, learner, batch, made.critic_loss)[0], expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("algorithm", "steps"),
    [
        (FQL, {"policy": "actor_loss", "flow": "flow_loss", "critic": "critic_loss"}),
        (IFQL, {"value": "value_loss", "critic": "critic_loss", "flow": "flow_loss"}),
    ],
)
def test_a_step_is_one_of_all_networks_at_once(algorithm, steps):
    """Each loss sees the others as the last step left them: plain gradients there, taken before anything moves."""
    rates = {"flow": 0.05, "policy": 0.04, "critic": 0.03, "value": 0.02}
    setting = {name: "actor" if name == "policy" else name for name in steps}
    settings = {f"{setting[name]}_optimizer": "sgd" for name in steps} | {
        f"{setting[name]}_learning_rate": rates[name] for name in steps
    }
    made, learner, batch = prepared(algorithm, **settings)
    targets = Nets(learner._targets, {}, None, learner.address(made.flow_loss), torch.float64)
    seen = learner.precompute(made.next_action, batch) if algorithm is FQL else batch
    wanted = {}
    for name, loss in steps.items():
        nets = Nets(learner.modules, {}, targets, learner.address(getattr(made, loss)), torch.float64, h=learner._h)
        each = getattr(made, loss)(nets, seen, learner._h)[0]
        parameters = dict(learner.modules[name].named_parameters())
        mean = (each.sum(0) if each.ndim == 2 else each).mean()
        slopes = torch.autograd.grad(mean, list(parameters.values()))
        for (parameter, tensor), slope in zip(parameters.items(), slopes, strict=True):
            wanted[f"live/{name}/{parameter}"] = (tensor - rates[name] * slope).detach()
    learner.update(batch)
    after = learner.state()
    for name, tensor in wanted.items():
        np.testing.assert_allclose(after[name], tensor, rtol=0, atol=1e-13, err_msg=name)


# ---- the flow


def test_eulers_method_by_hand():
    x = torch.tensor([[1.0, -2.0]])
    torch.testing.assert_close(integrated(lambda x, _: x, x, 4), x * 1.25**4)  # dx/dt = x
    torch.testing.assert_close(integrated(lambda _, t: 8 * t.expand(-1, 2), x, 4), x + 8 * (0 + 1 + 2 + 3) / 16)  # dx/dt = 8 t
    torch.testing.assert_close(integrated(lambda _, __: torch.ones(1, 2), x, 1), x + 1)


# ---- acting


def acted(made, noise):
    """What it does in `SEEN`, of given numbers."""
    with torch.no_grad():
        numbers = {PORT[type(made)]: torch.from_numpy(noise)}
        return made.act(made.fit_.nets(), torch.from_numpy(SEEN).double(), {}, numbers)[0].numpy()


@pytest.mark.parametrize("algorithm", ALL)
def test_an_action_is_what_its_noise_becomes(algorithm):
    made, learner, _ = reaching(algorithm, flow_steps=3)
    run, n = networks(learner), (4,) if algorithm is IFQL else ()
    noise, wanted = np.random.default_rng(0).standard_normal((7, *n, 3)), []
    for seen, z in zip(SEEN.astype(np.float64), noise, strict=True):
        if algorithm is FQL:
            wanted.append(np.clip(run("live", "policy", beside(seen, z)), -1, 1))
        elif algorithm is FBC:
            wanted.append(flowed(run, seen, z, 3))
        else:  # the best of four, as the critic has it that says less
            actions = [flowed(run, seen, one, 3) for one in z]
            wanted.append(max(actions, key=lambda a, seen=seen: min(values(run, "live", seen, a, 2))))
    np.testing.assert_allclose(acted(made, noise), wanted, rtol=1e-9, atol=1e-12)
    assert (np.abs(wanted) == 1).any()


@pytest.mark.parametrize("algorithm", ALL)
def test_greedy_actions_are_drawn_too(algorithm):
    """One state many times has as many actions; the next decision has others; a seed has the same again."""
    made = maker(algorithm)(seed=2).fit(tiny_dataset(discrete=False), 3)
    same = np.repeat(SEEN[:1], 5, 0)
    assert len(np.unique(made.predict(same), axis=0)) == 5
    np.testing.assert_array_equal(made.predict(same), made.predict(same))
    policy = made.policy()
    state, first = policy.step(policy.start(5), same)
    _, second = policy.step(state, same)
    np.testing.assert_array_equal(first, made.predict(same))
    assert (first != second).any(1).all()
    again, other = made.policy(), made.policy()
    other.seed = made.seed + 1
    np.testing.assert_array_equal(again.predict(same), first)
    assert (other.predict(same) != first).any(1).all()
    assert (made.sample_action(same) != first).any()


# ---- exports


def exported(algorithm, tmp_path):
    """A trained algorithm whose actions reach ±2, and its package."""
    arrays = tiny_arrays(False, reach=2.0)
    dataset = Dataset.from_arrays(**arrays | {"observations": 4 * arrays["observations"] + 3}, name="raw")
    scalers = {"observation_scaler": "standard", "action_scaler": "min_max"}
    made = maker(algorithm, **scalers)(seed=2).fit(dataset, 9)
    enlarge(made.fit_.learner)
    write_package(made, tmp_path / "package")
    return made, dataset.columns["observation"][:32], tmp_path / "package"


@pytest.mark.parametrize("algorithm", ALL)
def test_the_graph_takes_the_noise_and_acts_as_predict(algorithm, tmp_path):
    made, seen, package = exported(algorithm, tmp_path)
    (port,) = read_record(package).noise_inputs
    size = (4, 3) if algorithm is IFQL else (3,)
    assert (port.name, port.shape, port.distribution) == (f"noise/{PORT[algorithm]}", ("batch", *size), "normal")
    session = onnxruntime.InferenceSession(package / "policy.onnx", providers=["CPUExecutionProvider"])
    for n in (1, 7, 32):
        policy = made.policy()
        noise = policy.drawn(policy.start(n))
        (action,) = session.run(["action"], {"observation": seen[:n], **noise})
        np.testing.assert_allclose(action, made.predict(seen[:n]), atol=1e-5)
        np.testing.assert_allclose(read_package(package).predict(seen[:n]), action, atol=1e-6)
    (others,) = session.run(["action"], {"observation": seen, port.name: -noise[port.name]})
    assert (others != action).any(1).mean() > 0.9  # both may be at the ends of every entry
    assert np.abs(action).max() > 1  # in the data's units


@pytest.mark.parametrize("settings", [{}, {"n_critics": 1}, {"n_critics": 3}])
def test_exporting_the_best_of_some_prints_nothing(settings, capfd):
    """A trace has an operator for all that is in the graph; where it has none torch prints a graph, and another way is taken."""
    made = maker(IFQL, **settings)(seed=2).fit(tiny_dataset(discrete=False), 2)
    onnx_bytes(portable(made.policy()))
    assert capfd.readouterr() == ("", "")


OUTSIDE = """
import json, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "d3ray", "onnx"):
            raise ImportError(name)

sys.meta_path.insert(0, Blocker())
import numpy as np, onnxruntime

record = json.load(open("package/policy.json"))
session = onnxruntime.InferenceSession("package/policy.onnx", providers=["CPUExecutionProvider"])
(port,) = record["noise_inputs"]
rng, seen = np.random.default_rng(0), np.load("seen.npy")
noise = rng.standard_normal((len(seen), *port["shape"][1:])).astype(port["dtype"])
(action,) = session.run(["action"], {"observation": seen, port["name"]: noise})
json.dump({"noise": noise.tolist(), "action": action.tolist()}, sys.stdout)
"""


def test_a_package_of_fql_acts_where_there_is_no_d3ray(tmp_path):
    made, seen, _ = exported(FQL, tmp_path)
    np.save(tmp_path / "seen.npy", seen)
    done = subprocess.run([sys.executable, "-I", "-c", OUTSIDE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    noise = np.array(found["noise"], np.float32)
    wanted = made.policy().run_graph({"observation": seen, "noise/noise": noise})[0]
    np.testing.assert_allclose(found["action"], wanted, atol=1e-5)
