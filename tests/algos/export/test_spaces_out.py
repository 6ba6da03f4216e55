"""Raw observations in, raw actions out, in every space: collected, learned from, evaluated, exported, read back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import onnxruntime
import pytest
import torch
from gymnasium import spaces

from d3ray import BC, DQN, DiscreteBC, DiscreteDecisionTransformer
from d3ray.algos.base import Algorithm
from d3ray.algos.environments.collect import collect
from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.environments.make import make
from d3ray.algos.export.package import read_package
from d3ray.algos.judging.discrete_fqe import DiscreteFQE
from d3ray.algos.networks.encoders import PixelEncoder, VectorEncoder
from d3ray.data.dataset import Dataset
from d3ray.data.errors import DataError
from d3ray.data.spec import Box, Discrete, MultiDiscrete, Spec, value_columns

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
SHOWN: dict[str, Any] = {
    "box": VECTOR,
    "box of float64": spaces.Box(-5, 5, (3,), np.float64),
    "box of bytes": spaces.Box(0, 255, (3,), np.uint8),
    "box of int8": spaces.Box(-100, -2, (3,), np.int8),
    "box of int64": spaces.Box(-9, 9, (2, 2), np.int64),
    "image": spaces.Box(0, 255, (3, 12, 12), np.uint8),
    "discrete": spaces.Discrete(4),
    "discrete from 2": spaces.Discrete(4, start=2),
    "discrete from -9": spaces.Discrete(4, start=-9),
    "multi-discrete": spaces.MultiDiscrete([3, 4], start=[1, -7]),
    "multi-binary": spaces.MultiBinary(4),
    "dict": spaces.Dict(
        {"mode": spaces.Discrete(3, start=5), "arm": spaces.Tuple((VECTOR, spaces.MultiDiscrete([2, 3], start=[1, 0])))}
    ),
    "tuple": spaces.Tuple((spaces.Discrete(3, start=-1), spaces.Box(-3, 3, (2,), np.int8))),
}
TAKEN: dict[str, Any] = {
    "discrete": spaces.Discrete(3),
    "discrete from 1": spaces.Discrete(3, start=1),
    "discrete from -5": spaces.Discrete(3, start=-5),
    "box": spaces.Box(np.array([-0.1, -3], np.float32), np.array([0.7, 5], np.float32), dtype=np.float32),
    "box of float64": spaces.Box(-2, 2, (2,), np.float64),
    "box of int16": spaces.Box(-3, 4, (2,), np.int16),
    "matrix": spaces.Box(-2, 2, (2, 2), np.float32),
}
CELLS = [*((shown, "discrete from 1") for shown in SHOWN), *(("box", t) for t in TAKEN if t != "discrete from 1"), ("dict", "box")]
SMALL = VectorEncoder(hidden_units=(16, 16))


class Recorder(gymnasium.Env[Any, Any]):
    """Shows samples, takes nothing but what its space has, and keeps both."""

    def __init__(self, shown: Any, taken: Any) -> None:
        self.observation_space, self.action_space = shown, taken
        self.log: list[tuple[Any, Any]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.observation_space.seed(seed)
        self.t, self.now = 0, self.observation_space.sample()
        return self.now, {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(np.int64(action) if isinstance(action, int) else action), action
        self.log.append((self.now, action))
        self.t, self.now = self.t + 1, self.observation_space.sample()
        return self.now, float(np.sum(action)), self.t == 8, False, {}


def stacked(rows: list[Any]) -> Any:
    """Observations as a batch, nested as each is."""
    if isinstance(rows[0], dict):
        return {key: stacked([row[key] for row in rows]) for key in rows[0]}
    if isinstance(rows[0], tuple):
        return tuple(stacked(list(parts)) for parts in zip(*rows, strict=True))
    return np.stack(rows)


def taught(data: Dataset) -> Dataset:
    """The same in which discrete actions are the first or the last, by whether what is shown is small or large in sum."""
    if not isinstance(space := data.spec.action, Discrete):
        return data
    table = data.to_steps()
    seen = [column for name, column in table.columns.items() if name.startswith("observation")]
    total = sum((column.reshape(len(column), -1).astype(np.float64).sum(1) for column in seen), np.zeros(table.n_rows))
    action = np.where(total > np.median(total), space.start + space.n - 1, space.start) * ~table.columns["closing"]
    return Dataset.from_steps(replace(table, columns={**table.columns, "action": action}), name="taught", spec=data.spec)


def learner(data: Dataset) -> Algorithm:
    """What the spaces leave to choose, after a few steps."""
    space, scaler = data.spec.observation, None
    if isinstance(space, Box):
        scaler = "pixel" if len(space.shape) == 3 else "standard" if len(space.shape) == 1 else None
    encoder = PixelEncoder(filters=((4, 3, 2),), feature_size=8) if scaler == "pixel" else SMALL
    cheap: Any = {"batch_size": 32, "encoder": encoder, "learning_rate": 0.02, "observation_scaler": scaler}
    algorithm = DiscreteBC(**cheap, beta=0.0) if data.spec.discrete else BC(**cheap, action_scaler="min_max")
    return algorithm.fit(data, n_steps=60)


def exported(algorithm: Algorithm, seen: Any, folder: Path, forms: tuple[str, ...]) -> dict[str, Any]:
    """The actions of every export, by its form, at raw observations."""
    algorithm.save_policy(folder / "policy")
    found: dict[str, Any] = {"predict": algorithm.predict(seen), "package": read_package(folder / "policy").predict(seen)}
    session = onnxruntime.InferenceSession(folder / "policy" / "policy.onnx", providers=["CPUExecutionProvider"])
    named = {name: np.asarray(part) for name, part in value_columns(seen).items()}
    kinds = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(uint8)": np.uint8}
    raw = {port.name: named[port.name].astype(kinds.get(port.type, named[port.name].dtype)) for port in session.get_inputs()}
    found["onnx"] = session.run(["action"], raw)[0]
    tensors = {name.partition("/")[2]: torch.as_tensor(part) for name, part in raw.items()}
    given = tensors.get("", tensors)
    for form in forms:
        algorithm.save_policy(folder / f"policy{form}")
        read: Any = torch.jit.load if form == ".pt" else lambda path: torch.export.load(path).module()
        found[form] = read(folder / f"policy{form}")(given).numpy()
    return found


def check(shown: Any, taken: Any, folder: Path, *forms: str) -> None:
    environment = Recorder(shown, taken)
    data = collect(environment, n_steps=60, seed=1)
    algorithm = learner(taught(data).write(folder / "data"))
    environment.log.clear()
    evaluate(algorithm.policy(), environment, episodes=3)
    seen, done = (stacked(list(part)) for part in zip(*environment.log, strict=True))
    assert np.unique(done, axis=0).shape[0] > 1 or len(shown.shape or ()) == 3  # so that it matters what is seen
    found = exported(algorithm, seen, folder, forms)
    for form, actions in found.items():
        assert actions.shape == done.shape, form
        assert actions.dtype.kind == done.dtype.kind, form
        assert all(taken.contains(action.astype(taken.dtype) if taken.dtype == np.float64 else action) for action in actions), form
        np.testing.assert_allclose(actions, done, atol=1e-5, err_msg=form)
    environment.log.clear()
    evaluate(read_package(folder / "policy"), environment, episodes=3)
    np.testing.assert_allclose(stacked([action for _, action in environment.log]), done, atol=1e-5)


@pytest.mark.parametrize(("shown", "taken"), CELLS)
def test_exports_act_as_evaluation_does_in_every_space(shown: str, taken: str, tmp_path: Path) -> None:
    check(SHOWN[shown], TAKEN[taken], tmp_path, ".pt")


@pytest.mark.long
@pytest.mark.parametrize(("shown", "taken"), [("discrete from 2", "discrete from 1"), ("dict", "box of int16"), ("box", "matrix")])
def test_programs_of_torch_do_too(shown: str, taken: str, tmp_path: Path) -> None:
    check(SHOWN[shown], TAKEN[taken], tmp_path, ".pt2")


class Pays(gymnasium.Env[Any, Any]):
    """Pays 1 for the last of its actions alone, which are 1, 2 and 3; shows 2 to 5."""

    action_space, observation_space = spaces.Discrete(3, start=1), spaces.Discrete(4, start=2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return 2, {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return 2 + self.t % 4, float(action == 3), self.t >= 8, False, {}


EVERY = np.arange(2, 6)


def test_the_action_that_pays_is_the_one_that_leaves(tmp_path: Path) -> None:
    data = DQN(seed=0).collect(Pays(), n_steps=300)
    assert (data.spec.action, data.spec.observation) == (Discrete(n=3, start=1), Discrete(n=4, start=2))
    assert sorted(set(data.columns["action"][~data.columns["closing"]].tolist())) == [1, 2, 3]
    dqn = DQN(seed=0, learning_rate=1e-3, target_update_interval=50).fit(data, n_steps=300)
    dqn.save(tmp_path / "saved")
    assert dqn.predict(EVERY).tolist() == dqn.sample_action(EVERY).tolist() == [3, 3, 3, 3]
    assert DQN.load(tmp_path / "saved").predict(EVERY).tolist() == [3, 3, 3, 3]
    assert (dqn.predict_value(EVERY, [3] * 4) > dqn.predict_value(EVERY, [1] * 4)).all()
    for explorer in ("boltzmann", {"name": "epsilon_greedy", "start": 1.0, "end": 1.0}):
        explored = collect(make(Pays), dqn.policy(), n_steps=40, explorer=explorer)
        assert set(explored.columns["action"][~explored.columns["closing"]].tolist()) <= {1, 2, 3}
    with pytest.raises(DataError, match="Observations are whole numbers from 2 to 5 here; these reach from 0 to 3"):
        dqn.predict(np.arange(4))
    with pytest.raises(DataError, match="Actions are whole numbers from 1 to 3 here; these reach from 0 to 0"):
        dqn.predict_value(EVERY, [0] * 4)


def test_it_is_found_online_too() -> None:
    dqn = DQN(seed=0, learning_rate=1e-3, batch_size=16, target_update_interval=20)
    dqn.fit_online(Pays(), n_steps=400, explorer={"name": "constant_epsilon_greedy", "epsilon": 0.5})
    assert dqn.predict(EVERY).tolist() == [3, 3, 3, 3]


@pytest.mark.long
@pytest.mark.parametrize("start", [1, -5])
def test_policies_that_look_back_give_raw_actions_too(start: int, tmp_path: Path) -> None:
    environment = Recorder(SHOWN["dict"], spaces.Discrete(3, start=start))
    data = collect(environment, n_steps=60, seed=1)
    made = DiscreteDecisionTransformer(context=4, batch_size=8, encoder=SMALL, target_returns=(5.0,))
    algorithm = made.fit(data, n_steps=5)
    algorithm.save_policy(tmp_path / "policy")
    played: list[Any] = []
    for policy in (algorithm.policy(), read_package(tmp_path / "policy")):
        environment.log.clear()
        evaluate(policy, environment, episodes=2)
        played.append([action for _, action in environment.log])
    assert played[0] == played[1]


def log(first: int) -> Dataset:
    """16 steps in which actions count from `first`."""
    spec = Spec(observation=Discrete(n=4, start=2), action=Discrete(n=3, start=first))
    ends = np.arange(16) == 15
    return Dataset.from_arrays(np.tile(EVERY, 4), first + np.arange(16) % 3, np.zeros(16), ends, spec=spec, name="log")


def test_a_policy_is_judged_by_what_it_does(tmp_path: Path) -> None:
    """Of data and policy alike actions are raw, and they are indices to the networks that judge."""
    dqn = DQN(seed=0, learning_rate=1e-3, target_update_interval=50).fit(collect(Pays(), n_steps=300), n_steps=300)
    judge = DiscreteFQE(algo=dqn, gamma=0.0, learning_rate=1e-2).fit(collect(Pays(), n_steps=300, seed=1), n_steps=200)
    for action, worth in ((1, 0.0), (2, 0.0), (3, 1.0)):
        assert judge.predict_value(EVERY, [action] * 4) == pytest.approx([worth] * 4, abs=0.1)


def test_spaces_that_count_otherwise_are_refused() -> None:
    """As data are in which what the environment calls 1 is called 0."""
    policy = DiscreteBC(encoder=SMALL).fit(log(0), n_steps=1).policy()
    said = "has actions of 3 kinds from 1, and this policy was fitted on actions of 3 kinds: make the data anew, with the spec"
    with pytest.raises(DataError, match=said):
        evaluate(policy, Pays())
    with pytest.raises(DataError, match="The spec has actions from 1 on and the data has 0"):
        Dataset.from_steps(log(0).to_steps(), name="log", spec=log(1).spec)
    with pytest.raises(DataError, match="count kinds from different numbers: there are 3 kinds from 1, and 3 kinds"):
        Dataset.concat([log(1), log(0)])


def test_starts_are_written_where_they_are_not_zero() -> None:
    assert "start" not in Discrete(n=3).model_dump()
    assert "start" not in MultiDiscrete(nvec=(2, 3), start=(0, 0)).model_dump()
    assert MultiDiscrete(nvec=(2, 3), start=(0, 0)) == MultiDiscrete(nvec=(2, 3))
    with pytest.raises(ValueError, match="start has 1 entries and nvec 2"):
        MultiDiscrete(nvec=(2, 3), start=(1,))
