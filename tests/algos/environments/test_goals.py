"""Environments that set goals: how policies see them, tasks in turn, policies that pick them up, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import onnxruntime
import pytest
from gymnasium import spaces

from d3ray.algos.environments.evaluate import EnvironmentEvaluator, evaluate
from d3ray.algos.environments.make import environment_of, make
from d3ray.algos.export.package import read_package, read_record
from d3ray.algos.export.packing import write_package
from d3ray.algos.goal_conditioned.gcbc import GCBC
from d3ray.algos.goal_conditioned.gciql import GCIQL
from d3ray.algos.goal_conditioned.hiql import HIQL
from d3ray.algos.testing import maker
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.spec import Dict, Environment, Goals

TOLD: list[Any] = []  # the tasks that were asked for


class Plane(gymnasium.Env[np.ndarray, np.ndarray]):
    """Steps of a tenth in a plane; a task is a place on the circle of radius 1."""

    observation_space = spaces.Box(-2, 2, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        TOLD.append((options or {}).get("task_id"))
        angle = 2 * np.pi * (TOLD[-1] or 5) / 5
        self.place, self.goal, self.left = np.zeros(2, np.float32), np.array([np.cos(angle), np.sin(angle)], np.float32), 20
        return self.place.copy(), {"goal": self.goal}

    def step(self, action: np.ndarray) -> Any:
        self.place, self.left = np.clip(self.place + np.float32(0.1) * action, -2, 2), self.left - 1
        near = bool(np.linalg.norm(self.place - self.goal) < 0.15)
        return self.place.copy(), float(near), near, self.left == 0, {"success": near}


class Robots(Plane):
    """The same with keys as gymnasium-robotics has them."""

    observation_space: Any = spaces.Dict(
        {key: spaces.Box(-2, 2, (2,), np.float32) for key in ("observation", "achieved_goal", "desired_goal")}
    )

    def _keys(self, observation: np.ndarray) -> dict[str, np.ndarray]:
        return {"observation": observation, "achieved_goal": observation, "desired_goal": self.goal}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, _ = super().reset(seed=seed, options=options)
        return self._keys(observation), {}

    def step(self, action: np.ndarray) -> Any:
        observation, *rest = super().step(action)
        return self._keys(observation), *rest


class Aimless(Plane):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed, options=options)[0], {}


MADE = {"Plane-v0": Plane, "Robots-v0": Robots, "Aimless-v0": Aimless}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    for name, environment in MADE.items():
        gymnasium.register(name, environment)
    TOLD.clear()
    yield
    for name in MADE:
        del gymnasium.registry[name]


def wandering(n: int = 2_000) -> dict[str, Any]:
    """Arrays of steps that keep to a direction for a while."""
    rng, seen, actions = np.random.default_rng(0), [], []
    ends = np.arange(n) % 40 == 39
    place, angle = np.zeros(2), 0.0
    for end in ends:
        angle += rng.normal() * 0.4
        actions.append([np.cos(angle), np.sin(angle)])
        seen.append(place)
        place = np.clip(place + 0.1 * np.array(actions[-1]), -2, 2)
        if end:
            place, angle = rng.uniform(-1, 1, 2), rng.uniform(0, 7)
    numbers = [np.array(part, np.float32) for part in (seen, actions)]
    return {"observations": numbers[0], "actions": numbers[1], "rewards": np.zeros(n), "terminated": ends}


def straight(seen: np.ndarray, goal: np.ndarray) -> np.ndarray:
    return np.clip(10 * (goal - seen), -1, 1)


class Straight:
    """Goes to the goal, and nothing else."""

    def __init__(self) -> None:
        self.goals: list[np.ndarray] = []

    def start(self, n: int) -> None:
        return None

    def step(self, state: None, observation: dict[str, np.ndarray]) -> tuple[None, np.ndarray]:
        self.goals.append(observation["goal"].copy())
        return state, straight(observation["observation"], observation["goal"])


def test_the_goal_of_the_info_stands_beside_the_observation() -> None:
    config = Environment(id="Plane-v0", goals=Goals())
    with make(config, n=2) as vector:
        space = vector.spec.observation
        assert isinstance(space, Dict)
        assert {key: part.shape for key, part in space.spaces.items()} == {"observation": (2,), "goal": (2,)}  # type: ignore
        seen = vector.reset([0, 1], [0, 1], [{"task_id": 1}, {"task_id": 3}])
        angles = 2 * np.pi * np.array([1, 3]) / 5
        goals = np.stack([np.cos(angles), np.sin(angles)], 1)
        np.testing.assert_allclose(seen["goal"], goals, rtol=1e-6)
        assert (seen["observation"] == 0).all()
        assert environment_of(vector.single) == config
        assert vector.single.unwrapped.spec.id == "Plane-v0"


def test_entries_of_a_goal_may_be_one() -> None:
    with make(Environment(id="Plane-v0", goals=Goals(part=(1,)))) as vector:
        seen = vector.reset(options=[{"task_id": 2}])
    np.testing.assert_allclose(seen["goal"], [[np.sin(2 * np.pi * 2 / 5)]], rtol=1e-6)
    with pytest.raises(ConfigError, match=r"Plane-v0 sets goals of the shape \[2\], and goals.part is \[2\]"):
        make(Environment(id="Plane-v0", goals=Goals(part=(2,))))


def test_the_key_that_is_asked_for_is_the_goal() -> None:
    with make(Environment(id="Robots-v0", goals=Goals())) as vector:
        assert isinstance(vector.spec.observation, Dict)
        assert set(vector.spec.observation.spaces) == {"observation", "achieved_goal", "goal"}
        seen = vector.reset(options=[{"task_id": 1}])
        np.testing.assert_allclose(seen["goal"], [[np.cos(2 * np.pi / 5), np.sin(2 * np.pi / 5)]], rtol=1e-6)
    assert evaluate(Straight(), Environment(id="Robots-v0", goals=Goals()), episodes=3).returns.tolist() == [1, 1, 1]


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_tasks_come_in_turn_whatever_the_number_of_environments(n: int) -> None:
    policy = Straight()
    played = evaluate(policy, Environment(id="Plane-v0", goals=Goals(tasks=(1, 4, 2))), episodes=7, n_envs=n)
    asked = [task for task in TOLD if task is not None]
    assert asked == [1, 4, 2, 1, 4, 2, 1]
    assert played.returns.tolist() == [1] * 7


@pytest.mark.parametrize("n", [1, 3])
def test_which_tasks_were_solved_is_told_by_task(n: int) -> None:
    class Rightward(Straight):
        """Goes to goals on the right, which task 2 has not, and stays where it is else."""

        def step(self, state: None, observation: dict[str, np.ndarray]) -> tuple[None, np.ndarray]:
            action = super().step(state, observation)[1]
            return state, np.where(observation["goal"][:, :1] > 0, action, 0)

    class Algorithm:
        def policy(self) -> Straight:
            return Rightward()

    environment = Environment(id="Plane-v0", goals=Goals(tasks=(1, 2, 4)))
    played = evaluate(Rightward(), environment, episodes=7, n_envs=n)
    assert played.tasks is not None
    assert played.tasks.tolist() == [1, 2, 4, 1, 2, 4, 1]
    shares = {"success": pytest.approx(5 / 7), "success_task1": 1.0, "success_task2": 0.0, "success_task4": 1.0}
    assert played.shares == shares
    found = EnvironmentEvaluator(environment, episodes=7)(Algorithm(), 1)
    assert {name: value for name, value in found.items() if name.startswith("success")} == shares
    with make("Plane-v0") as vector:
        assert set(evaluate(Plain(), vector, episodes=2).shares) == {"success"}


def test_tasks_come_in_turn_below_other_wrappers() -> None:
    def cut() -> Any:
        return gymnasium.wrappers.TimeLimit(make(Environment(id="Plane-v0", goals=Goals(tasks=(3, 1)))).single, 5)

    evaluate(Straight(), cut, episodes=3, n_envs=2)
    assert [task for task in TOLD if task is not None] == [3, 1, 3]


def test_what_an_environment_calls_tasks_itself_is_no_option() -> None:
    class Own(Plane):
        tasks = ("reach", "push")

        def step(self, action: Any) -> Any:
            return super().step(np.zeros(2, np.float32))

    evaluate(Plain(), Own, episodes=2)
    assert set(TOLD) == {None}


class Plain:
    def start(self, n: int) -> None:
        return None

    def step(self, state: None, observation: np.ndarray) -> tuple[None, np.ndarray]:
        return state, np.zeros((len(observation), 2), np.float32)


def test_environments_without_tasks_draw_their_own() -> None:
    evaluate(Straight(), Environment(id="Plane-v0", goals=Goals()), episodes=3)
    assert set(TOLD) == {None}


@pytest.mark.parametrize(("name", "said"), [("Aimless-v0", "a reset's info has no 'goal'")])
def test_environments_that_set_no_goal_are_refused(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} sets no goal: {said}"):
        make(Environment(id=name, goals=Goals()))


def test_a_dict_without_what_is_asked_for_sets_no_goal() -> None:
    class Keys(Plane):
        observation_space: Any = spaces.Dict({"place": Plane.observation_space})

    gymnasium.register("Keys-v0", Keys)
    try:
        with pytest.raises(ConfigError, match="Keys-v0 sets no goal: its observations have no key 'desired_goal'"):
            make(Environment(id="Keys-v0", goals=Goals()))
    finally:
        del gymnasium.registry["Keys-v0"]


def test_a_part_of_a_key_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"has its goal as a key of its observations, which is told whole: leave goals\.part out"):
        make(Environment(id="Robots-v0", goals=Goals(part=(0,))))
    with pytest.raises(ConfigError, match="part"):
        Goals.checked({"part": []})


# ---- policies


def trained(algorithm: Any = GCIQL, n: int = 3, **settings: Any) -> Any:
    return maker(algorithm, **settings)(seed=2).fit(Dataset.from_arrays(**wandering(400)), n, show_progress=False)


def test_a_policy_with_goals_picks_them_up_by_itself() -> None:
    made = trained()
    played = evaluate(made.policy(), "Plane-v0", episodes=3)
    told = evaluate(made.policy(), Environment(id="Plane-v0", goals=Goals()), episodes=3)
    assert played.returns.tolist() == told.returns.tolist()
    metrics = EnvironmentEvaluator("Plane-v0", episodes=3)(made, 1)
    assert np.isfinite(metrics["return"])
    with pytest.raises(ConfigError, match="Aimless-v0 sets no goal"):
        evaluate(made.policy(), "Aimless-v0", episodes=1)


def test_gcbc_goes_where_it_is_told() -> None:
    """Random actions reach a goal in one episode of fifty or so, and so does a policy that does not look at it."""
    small = {"actor_encoder": {"hidden_units": [32, 32]}, "actor_learning_rate": 3e-3, "batch_size": 256}
    made = GCBC(**small, seed=1).fit(Dataset.from_arrays(**wandering(4_000)), 600, 600, show_progress=False)
    played = evaluate(made.policy(), Environment(id="Plane-v0", goals=Goals(tasks=(1, 2, 3, 4, 5))), episodes=20)
    assert played.mean > 0.5


@pytest.mark.parametrize("algorithm", [GCIQL, HIQL])
def test_the_goal_is_a_second_input_of_the_exported_graph(algorithm: Any, tmp_path: Path) -> None:
    made = trained(algorithm, observation_scaler="standard")
    write_package(made, tmp_path / "package")
    rng = np.random.default_rng(0)
    seen = {key: rng.normal(size=(9, 2)).astype(np.float32) for key in ("observation", "goal")}
    session = onnxruntime.InferenceSession(tmp_path / "package" / "policy.onnx", providers=["CPUExecutionProvider"])
    assert {port.name: port.shape[1:] for port in session.get_inputs()} == {"observation/observation": [2], "observation/goal": [2]}
    (action,) = session.run(["action"], {f"observation/{key}": part for key, part in seen.items()})
    np.testing.assert_allclose(action, made.predict(seen), atol=1e-5)
    assert (np.abs(made.predict({**seen, "goal": -seen["goal"]}) - action).max(1) > 0).all()
    package = read_package(tmp_path / "package")
    np.testing.assert_allclose(package.predict(seen), action, atol=1e-6)
    assert np.isfinite(evaluate(package, "Plane-v0", episodes=2).mean)
    assert read_record(tmp_path / "package").noise_inputs == ()


# ---- bad input


def test_a_goal_part_that_is_not_there_is_refused() -> None:
    with pytest.raises(DataError, match=r"have the shape \[2\], and a goal was to be its entries \[5\]"):
        trained(goal_part=(5,))
    with pytest.raises(DataError, match="a goal is the whole or entries by number, not 'place'"):
        trained(goal_part="place")


def test_augmentation_is_refused() -> None:
    with pytest.raises(ConfigError, match="what is told a goal takes no augmentation"):
        trained(augmentation=["single_amplitude_scaling"])


def test_discrete_actions_are_refused() -> None:
    arrays = wandering(80)
    with pytest.raises(DataError, match="GCIQL needs continuous actions"):
        maker(GCIQL)().fit(Dataset.from_arrays(**{**arrays, "actions": np.arange(80) % 3}), 1)


@pytest.mark.parametrize("algorithm", [GCIQL, HIQL])
def test_goals_in_hindsight_are_a_datasets(algorithm: Any) -> None:
    with pytest.raises(ConfigError, match=f"{algorithm.__name__} draws its goals in hindsight from a dataset: train it on one"):
        maker(algorithm)().fit_online("Plane-v0", n_steps=1)
    with pytest.raises(ConfigError, match="draws its goals in hindsight from a dataset"):
        maker(algorithm)().fit_online(lambda: make(Environment(id="Plane-v0", goals=Goals())).single, n_steps=1)


def test_predicting_without_the_goal_is_refused() -> None:
    made = trained()
    with pytest.raises(DataError, match="goal"):
        made.predict(np.zeros((3, 2), np.float32))
    with pytest.raises(DataError, match="goal"):
        made.predict({"observation": np.zeros((3, 2), np.float32)})


def test_logged_goals_that_would_be_scaled_otherwise_are_refused() -> None:
    arrays = wandering(80)
    seen = {"observation": arrays["observations"], "goal": 5 + 3 * arrays["observations"]}
    data = Dataset.from_arrays(**{**arrays, "observations": seen}, name="logged")
    assert np.isfinite(maker(GCIQL)(seed=1).fit(data, 2).predict({key: part[:2] for key, part in seen.items()})).all()
    with pytest.raises(DataError, match="observation_scaler scales the goals of 'logged' otherwise than what is reached"):
        maker(GCIQL, observation_scaler="standard")().fit(data, 1)
    with pytest.raises(DataError, match=r"Goals of 'logged' have the shape \[2\], and what is reached by goal_part has \[1\]"):
        maker(GCIQL, goal_part=(0,))().fit(data, 1)
