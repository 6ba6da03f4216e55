"""Scorers and comparers equal slow loops over single transitions, whatever the data lie in; evaluators give the same, positive."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import d3ray
from d3ray import MDPDataset, metrics
from d3ray.algos.judging.scorers import SCORERS, Scorer
from d3ray.algos.judging.seen import recordings
from d3ray.algos.testing import SMALL, maker, tiny_arrays, tiny_dataset
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.platform.settings.config import ScorerName
from d3ray.platform.settings.objective import is_cost

SCALED = {"observation_scaler": "standard", "reward_scaler": {"name": "multiply", "multiplier": 3.0}}


def blind(*, discrete: bool) -> Dataset:
    """The tiny data, of which no cut says what came next."""
    arrays = tiny_arrays(discrete, 200)
    del arrays["final_observations"]
    return Dataset.from_arrays(**arrays, name="blind")


def slow(algorithm: Any, data: Dataset, threshold: float, scale: float) -> dict[str, float]:
    """Every number by a loop over single transitions, with `predict` and `predict_value` alone."""
    gamma, found = algorithm.gamma, {name: list[float]() for name in [*SCORERS, "success", "all"]}
    for episode in data.episodes:
        seen, masks = episode.observations, episode.action_masks
        advantages: list[float] = []

        def value(t: int, action: Any, with_std: bool = False, seen: Any = seen) -> Any:
            answer = algorithm.predict_value(seen[t : t + 1], np.asarray(action)[None], with_std)
            return (float(answer[0][0]), float(answer[1][0])) if with_std else float(answer[0])

        def act(t: int, seen: Any = seen, masks: Any = masks) -> Any:
            return algorithm.predict(seen[t : t + 1], None if masks is None else masks[t : t + 1])[0]

        for t in range(len(episode)):
            taken, chosen = episode.actions[t], act(t)
            q, (best, std) = value(t, taken), value(t, chosen, with_std=True)
            last = t == len(episode) - 1
            if not last or episode.terminated or episode.final_recorded:
                after = 0.0 if last and episode.terminated else value(t + 1, act(t + 1))
                found["td_error"].append((scale * float(episode.rewards[t]) + gamma * after - q) ** 2)
            advantages.append(q - best)
            found["average_value_estimation"].append(best)
            found["value_estimation_std"].append(std)
            found["initial_state_value_estimation"] += [best] * (t == 0)
            found["all"].append(q)
            found["success"] += [q] * (episode.compute_return() >= threshold)
            found["continuous_action_diff"].append(float(np.sum((taken - chosen) ** 2)))
            found["discrete_action_match"].append(float(taken == chosen) if np.ndim(taken) == 0 else 0.0)
        for t in range(len(episode)):
            found["discounted_sum_of_advantage"].append(sum(gamma**k * a for k, a in enumerate(advantages[t:])))
    means = {name: float(np.mean(numbers)) for name, numbers in found.items()}
    return {**means, "soft_opc": means.pop("success") - means.pop("all")}


CASES = {
    "DQN, two critics, scaled": (maker(d3ray.DQN, n_critics=2, **SCALED), tiny_dataset(discrete=True, n=200)),
    "IQN, legal actions": (maker(d3ray.IQN), tiny_dataset(discrete=True, n=200, masked="some")),
    "TD3, scaled": (maker(d3ray.TD3, action_scaler="min_max", **SCALED), tiny_dataset(discrete=False, n=200, reach=2.0)),
    "SAC, gamma 1, no final observations": (maker(d3ray.SAC, gamma=1.0), blind(discrete=False)),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_each_is_what_a_loop_over_transitions_gives(case: str) -> None:
    make, data = CASES[case]
    algorithm = make(seed=3, dtype="float64").fit(data, 12)
    returns = [episode.compute_return() for episode in data.episodes]
    threshold = sorted(returns)[-5]  # one that is just met
    scale = 3.0 if "scaled" in case else 1.0
    known, expected = {**SCORERS, "soft_opc": metrics.soft_opc_scorer(threshold)}, slow(algorithm, data, threshold, scale)
    del known["continuous_action_diff" if data.spec.discrete else "discrete_action_match"]
    for name, scorer in known.items():
        for window_size in (1024, 7):
            score = scorer(algorithm, data, window_size)
            assert score == pytest.approx(scorer.sign * expected[name], rel=1e-7, abs=1e-12), (
                name
            )  # `predict` rounds to the space's float32
    together = metrics.Scores(list(known.values()), data)(algorithm, 1)
    assert together == {name: pytest.approx(expected[name], rel=1e-7, abs=1e-12) for name in known}
    assert (expected["value_estimation_std"] > 0) == (algorithm.config_.n_critics > 1)


def test_data_may_be_a_dataset_or_episodes_in_any_form(monkeypatch: pytest.MonkeyPatch) -> None:
    data = tiny_dataset(discrete=False, n=200)
    algorithm = maker(d3ray.TD3)(dtype="float64").fit(data, 5)
    scorer = metrics.discounted_sum_of_advantage_scorer
    expected = scorer(algorithm, data)
    row = sum(column[:1].nbytes for column in data.columns.values())
    monkeypatch.setattr("d3ray.algos.judging.seen._BYTES", 30 * row)  # so that lists are taken up in several parts
    forms: list[Any] = [list(data.episodes), data.episodes, MDPDataset.from_episodes(data.episodes), tuple(data.episodes)]
    parts = [part.n_transitions for part in recordings(forms[0])]
    assert len(parts) > 4
    assert max(parts) < 30 + 21  # rows, and an episode that crosses the line
    assert [scorer(algorithm, form) for form in forms] == [pytest.approx(expected, rel=1e-12)] * 4
    view = data.take([5, 2, 9])
    assert scorer(algorithm, view) == pytest.approx(scorer(algorithm, [data.episodes[k] for k in (5, 2, 9)]), rel=1e-12)
    assert algorithm.fit_.sources.given is data


def test_stacked_frames_are_those_of_training() -> None:
    rng = np.random.default_rng(0)
    frames, end = rng.integers(0, 256, (60, 1, 12, 12), dtype=np.uint8), np.arange(60) % 12 == 11
    data = Dataset.from_arrays(frames, np.arange(60) % 2, np.ones(60), end)
    settings: dict[str, Any] = {"observation_scaler": "pixel", "sampler": {"name": "uniform", "frames": 3}}
    algorithm = maker(d3ray.DQN, **settings)().fit(data, 3)
    expected = []
    for episode in data.episodes:
        padded = np.concatenate([np.zeros((2, 1, 12, 12), np.uint8), episode.observations])
        stacks = np.stack([padded[t : t + 3, 0] for t in range(len(episode))])
        expected += list(algorithm.predict(stacks) == episode.actions)
    assert metrics.discrete_action_match_scorer(algorithm, data) == pytest.approx(np.mean(expected))
    single = maker(d3ray.DQN, observation_scaler="pixel")().fit(data, 3)  # a comparer shows each what it was trained on
    theirs = single.predict(np.concatenate([episode.observations[:-1] for episode in data.episodes]))
    mine = np.concatenate([algorithm.predict(stacks_of(episode)) for episode in data.episodes])
    assert metrics.compare_discrete_action_match(single)(algorithm, data) == pytest.approx(np.mean(mine == theirs))


def stacks_of(episode: Any) -> np.ndarray:
    padded = np.concatenate([np.zeros((2, 1, 12, 12), np.uint8), episode.observations])
    return np.stack([padded[t : t + 3, 0] for t in range(len(episode))])


def test_comparers_and_evaluators_by_hand() -> None:
    data = tiny_dataset(discrete=False, n=200, reach=2.0)
    one, other = (maker(d3ray.TD3, action_scaler="min_max")(seed=seed).fit(data, 5) for seed in (1, 2))
    seen = np.concatenate([episode.observations[:-1] for episode in data.episodes])
    apart = float(np.mean(np.sum((one.predict(seen) - other.predict(seen)).astype("f8") ** 2, 1)))
    compare = metrics.compare_continuous_action_diff(other, window_size=9)
    assert compare(one, data) == pytest.approx(-apart, rel=1e-5)
    assert compare(other, list(data.episodes)) == 0
    evaluators = {
        "td": metrics.TDErrorEvaluator(data),
        "advantage": metrics.DiscountedSumOfAdvantageEvaluator(data),
        "value": metrics.AverageValueEstimationEvaluator(data),
        "start": metrics.InitialStateValueEstimationEvaluator(data),
        "opc": metrics.SoftOPCEvaluator(0.0, data),
        "diff": metrics.ContinuousActionDiffEvaluator(data),
        "apart": metrics.CompareContinuousActionDiffEvaluator(other),  # of what is trained on
    }
    algorithm = maker(d3ray.TD3, action_scaler="min_max")()
    found = algorithm.fitter(data, 4, 4, evaluators=evaluators)
    ((_, measured),) = list(found)
    assert measured["td/td_error"] == -metrics.td_error_scorer(algorithm, data) > 0
    assert measured["start/initial_state_value_estimation"] == metrics.initial_state_value_estimation_scorer(algorithm, data)
    assert measured["opc/soft_opc"] == metrics.soft_opc_scorer(0.0)(algorithm, data)
    assert measured["apart/compare_continuous_action_diff"] == -metrics.compare_continuous_action_diff(other)(algorithm, data)
    assert {name for name in measured if name.split("/")[0] in evaluators} == {
        *("td/td_error", "advantage/discounted_sum_of_advantage", "value/average_value_estimation", "opc/soft_opc"),
        *("start/initial_state_value_estimation", "diff/continuous_action_diff", "apart/compare_continuous_action_diff"),
    }
    discrete = tiny_dataset(discrete=True, n=100)
    mine, theirs = (maker(d3ray.DQN)(seed=seed).fit(discrete, 2) for seed in (1, 2))
    shown = np.concatenate([episode.observations[:-1] for episode in discrete.episodes])
    alike = float(np.mean(mine.predict(shown) == theirs.predict(shown)))
    assert metrics.CompareDiscreteActionMatchEvaluator(theirs)(mine, 1) == {"compare_discrete_action_match": alike}
    assert metrics.DiscreteActionMatchEvaluator(discrete)(mine, 1)["discrete_action_match"] == SCORERS["discrete_action_match"](
        mine, discrete
    )


def test_what_judges_a_policy_is_scored_by_what_that_would_do() -> None:
    for discrete, make in ((True, maker(d3ray.DQN)), (False, maker(d3ray.TD3))):
        data = tiny_dataset(discrete=discrete, n=100)
        judged = make(seed=1).fit(data, 5)
        fqe = (d3ray.DiscreteFQE if discrete else d3ray.FQE)(algo=judged, encoder=SMALL).fit(data, 5)
        first = np.stack([episode.observations[0] for episode in data.episodes])
        expected = fqe.predict_value(first, judged.predict(first)).mean()
        assert metrics.initial_state_value_estimation_scorer(fqe, data) == pytest.approx(expected, rel=1e-5)
        seen = np.concatenate([episode.observations[:-1] for episode in data.episodes])
        taken = np.concatenate([episode.actions for episode in data.episodes])
        every = fqe.predict_value(seen, taken)
        success = np.concatenate([np.full(len(episode), episode.compute_return() >= 0) for episode in data.episodes])
        assert metrics.soft_opc_scorer(0)(fqe, data) == pytest.approx(every[success].mean() - every.mean(), abs=1e-5)


def test_what_is_handed_to_fit_as_scorers_is_logged_with_its_own_sign() -> None:
    data = tiny_dataset(discrete=True, n=100)
    train, test = data.split(0.3, seed=0)
    scorers = {"td": metrics.td_error_scorer, "mine": lambda algorithm, episodes: -float(len(list(episodes)))}
    algorithm = maker(d3ray.DQN)()
    algorithm.fit(list(train.episodes), n_epochs=2, scorers=scorers, eval_episodes=list(test.episodes))
    assert algorithm.step == 2 * (train.n_transitions // algorithm.batch_size)
    assert algorithm.eval_results_["scorers/td"][-1] == -metrics.td_error_scorer(algorithm, test) > 0
    assert algorithm.eval_results_["scorers/mine"] == [-test.n_episodes] * 2
    algorithm.fit(data, n_epochs=2, n_steps_per_epoch=3, scorers={"td": metrics.td_error_scorer})
    assert algorithm.eval_results_["scorers/td"][-1] == -metrics.td_error_scorer(algorithm, data)
    with pytest.raises(ConfigError, match="n_epochs is 1 and n_steps 5: say how long to train by one of them"):
        algorithm.fit(data, 5, n_epochs=1)


def test_playing_is_a_scorer_too() -> None:
    algorithm = d3ray.DQN(encoder=SMALL, batch_size=8).build_with_env("CartPole-v1")
    scorer = metrics.evaluate_on_environment("CartPole-v1", n_trials=3)
    assert scorer(algorithm) == scorer(algorithm, [], "more") >= 8
    assert metrics.evaluate_on_environment("CartPole-v1", n_trials=20, epsilon=1.0)(algorithm) != scorer(algorithm)
    assert metrics.EnvironmentEvaluator("CartPole-v1", n_trials=3)(algorithm, 1)["return"] == scorer(algorithm)
    import gymnasium

    with pytest.raises(ConfigError, match=r'^render is set, and this environment was not made with render_mode="human"\.$'):
        metrics.evaluate_on_environment(gymnasium.make("CartPole-v1"), render=True)


def test_old_names_are_the_same_things() -> None:
    assert importlib.import_module("d3ray.metrics.scorer").td_error_scorer is metrics.td_error_scorer
    assert importlib.import_module("d3ray.metrics.comparer").compare_discrete_action_match
    assert d3ray.metrics.td_error_scorer is metrics.td_error_scorer
    assert [name for name in metrics.__all__ if not hasattr(metrics, name)] == []
    again = pickle.loads(pickle.dumps(metrics.soft_opc_scorer(3.0)))  # to a process that scores
    data = tiny_dataset(discrete=True, n=100)
    algorithm = maker(d3ray.DQN)().fit(data, 1)
    assert again(algorithm, data) == metrics.soft_opc_scorer(3.0)(algorithm, data)
    assert {*SCORERS, "soft_opc"} == set(ScorerName.__args__)
    turned = {name for name, scorer in SCORERS.items() if scorer.sign < 0}
    assert {name for name in ScorerName.__args__ if is_cost(f"scorers/{name}")} == turned


DISCRETE, CONTINUOUS = tiny_dataset(discrete=True, n=60), tiny_dataset(discrete=False, n=60)


def refusals() -> Mapping[str, tuple[Any, Any, Any, type[Exception], str]]:
    td = SCORERS["td_error"]
    dqn, td3 = maker(d3ray.DQN)().fit(DISCRETE, 1), maker(d3ray.TD3)().fit(CONTINUOUS, 1)
    transformer = maker(d3ray.DecisionTransformer)().fit(CONTINUOUS, 1)
    tiny = Dataset.from_arrays(np.zeros((2, 5)), np.zeros(2, np.int64), np.zeros(2), [False, False], [True, True])
    other = tiny_dataset(discrete=True, n=60, observation_size=4)
    return {
        "untrained": (td, d3ray.DQN(), DISCRETE, ConfigError, "This DQN has not been trained yet: call fit, or load a saved one."),
        "no values": (td, maker(d3ray.DiscreteBC)().fit(DISCRETE, 1), DISCRETE, ConfigError, "DiscreteBC learns no values"),
        "looks back": (SCORERS["continuous_action_diff"], transformer, CONTINUOUS, ConfigError, "acts on what came before"),
        "discrete": (SCORERS["continuous_action_diff"], dqn, DISCRETE, ConfigError, "DQN has discrete actions, which have no dist"),
        "continuous": (SCORERS["discrete_action_match"], td3, CONTINUOUS, ConfigError, "TD3 has continuous actions, which never"),
        "compared": (
            metrics.compare_continuous_action_diff(dqn),
            dqn,
            DISCRETE,
            ConfigError,
            "DQN has discrete actions, which compare",
        ),
        "two kinds": (metrics.compare_discrete_action_match(td3), dqn, DISCRETE, ConfigError, "TD3 has continuous actions"),
        "no success": (metrics.soft_opc_scorer(1e6), dqn, DISCRETE, DataError, "Nothing can be measured: no episode returns 1e+06"),
        "no next": (td, dqn, tiny, DataError, "no transition tells which observation followed"),
        "nothing": (td, dqn, [], DataError, "A dataset needs one episode or more"),
        "a path": (td, dqn, "d3ray/cartpole-replay", DataError, "a list of its episodes, not 'd3ray/cartpole-replay'"),
        "arrays": (td, dqn, np.zeros((3, 5)), DataError, "a list of its episodes, not a ndarray"),
        "a number": (td, dqn, 5, DataError, "a list of its episodes, not a int"),
        "other spaces": (td, dqn, other, DataError, "'tiny' has observations of shape [4], and this DQN was fitted on obs"),
        "window": (lambda a, e: td(a, e, 0), dqn, DISCRETE, ConfigError, "window_size is 0"),
    }


def test_what_cannot_be_scored_is_one_sentence() -> None:
    for case, (scorer, algorithm, episodes, error, message) in refusals().items():
        with pytest.raises(error) as caught:
            scorer(algorithm, episodes)
        assert message in str(caught.value), case
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"^DQN is no model of the dynamics: score a trained ProbabilisticEnsemble"):
        metrics.dynamics_prediction_variance_scorer(refusals()["window"][1], DISCRETE)
    assert isinstance(metrics.td_error_scorer, Scorer)


def test_masks_are_respected_where_values_are_compared() -> None:
    """The action that the critic likes best is illegal everywhere: no number but Q(s, a) may know of it."""
    rng, n = np.random.default_rng(0), 40
    legal = np.ones((n, 3), bool)
    legal[:, 2] = False
    action, end = rng.integers(0, 2, n), np.arange(n) % 10 == 9
    arrays = rng.normal(size=(n, 4)).astype("f4"), action, np.zeros(n), end
    data = Dataset.from_arrays(*arrays, action_mask=legal)
    unmasked = Dataset.from_arrays(*arrays, action_mask=np.ones((n, 3), bool))
    algorithm = maker(d3ray.DQN)().fit(data, 1)
    head = algorithm.fit_.learner.modules["critic"]
    for name, parameter in head.named_parameters():
        if name.endswith("head.bias"):
            parameter.data[..., 2] = 100.0
    seen = data.columns["observation"][:-1]
    assert (algorithm.predict(seen) == 2).all()
    assert metrics.average_value_estimation_scorer(algorithm, data) > -50
    assert metrics.td_error_scorer(algorithm, data) > -50
    assert metrics.td_error_scorer(algorithm, unmasked) < -50
