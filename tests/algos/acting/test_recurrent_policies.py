"""Policies with recurrent encoders: their memory through steps, environments that end, explorers, exports and packages."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from d3ray import BC, DQN, IQL, DiscreteBC, DiscreteBCQ, DiscreteIQL, Rainbow, load
from d3ray.algos import testing
from d3ray.algos.acting.remembering import StatefulWrapper
from d3ray.algos.base import Algorithm
from d3ray.algos.export.package import read_package, read_record
from d3ray.algos.export.packing import read_torch_policy, write_package
from d3ray.algos.judging.held_out import HeldOut
from d3ray.algos.networks.encoders import GRUEncoder, LSTMEncoder, VectorEncoder
from d3ray.data.errors import ConfigError
from d3ray.data.histories import Histories

PLAIN = VectorEncoder(hidden_units=(4,))
GRU, LSTM = GRUEncoder(units=5, encoder=PLAIN), LSTMEncoder(units=3, encoder=PLAIN)


def maker(algorithm: type[Algorithm], encoder: Any = GRU, **settings: Any) -> testing.Make:
    fields = [name for name in algorithm.Config.model_fields if name.endswith("encoder") and name != "share_encoder"]
    encoders = dict.fromkeys(fields, encoder)
    return testing.maker(algorithm, **{**encoders, "sampler": {"name": "recurrent", "length": 6, "burn_in": 2}, **settings})


def trained(algorithm: type[Algorithm], encoder: Any = GRU, **settings: Any) -> Any:
    make = maker(algorithm, encoder, seed=1, **settings)
    return make().fit(testing.data_for(make), 5, 5)


CASES = [(DQN, GRU), (DQN, LSTM), (DiscreteBC, GRU), (BC, LSTM), (IQL, GRU), (DiscreteIQL, LSTM), (DiscreteBCQ, GRU)]
SIZES = {"gru": 5, "lstm": 6}


def shown(made: Any, n: int, first: int = 0) -> np.ndarray:
    data = testing.data_for(type(made))
    return data.columns["observation"][first : first + n]


@pytest.mark.parametrize(("algorithm", "encoder"), CASES)
def test_acting_a_step_at_a_time_is_acting_on_whole_stretches(algorithm: type[Algorithm], encoder: Any) -> None:
    made = trained(algorithm, encoder, dtype="float64", observation_scaler="standard")
    steps = np.stack([shown(made, 6), shown(made, 6, 6)])  # two environments, six steps
    scaled = made.fit_.scaling.observation(torch.from_numpy(steps.reshape(12, -1)).double()).reshape(2, 6, -1)
    with torch.no_grad():
        together = made.act(made.fit_.nets(), Histories(scaled, torch.ones(2, 6, dtype=torch.bool), 0), {}, {})[0]
    policy = made.policy()
    state = policy.start(2)
    assert all(array.shape == (2, SIZES[encoder.name]) for array in state.values())
    for t in range(6):
        state, action = policy.step(state, steps[:, t])
        np.testing.assert_allclose(action, together.unflatten(0, (2, 6))[:, t].numpy(), rtol=1e-10, atol=1e-12)
    assert all(np.abs(array).max() > 1e-3 for array in state.values())


@pytest.mark.parametrize(("algorithm", "encoder"), [(DQN, GRU), (BC, LSTM)])
def test_the_memory_matters_and_single_observations_are_refused(algorithm: type[Algorithm], encoder: Any) -> None:
    made = trained(algorithm, encoder)
    assert set(made.policy().start(1)) == {"state/critic" if algorithm is DQN else "state/policy"}
    for refused in (made.predict, made.sample_action):
        with pytest.raises(
            ConfigError, match=r"acts on what came before, so one observation is not enough: use policy\(\) with start"
        ):
            refused(shown(made, 2))
    if algorithm is DQN:
        with pytest.raises(ConfigError, match="DQN values an action by what came before too"):
            made.predict_value(shown(made, 2), np.zeros(2, np.int64))


@pytest.mark.parametrize(("algorithm", "encoder"), CASES)
def test_a_package_keeps_the_memory_and_acts_as_the_policy(algorithm: type[Algorithm], encoder: Any, tmp_path: Any) -> None:
    made = (
        trained(algorithm, encoder, observation_scaler="standard", n_critics=2) if algorithm is DQN else trained(algorithm, encoder)
    )
    write_package(made, tmp_path / "package")
    record = read_record(tmp_path / "package")
    own, onnx = made.policy(), read_package(tmp_path / "package")
    inputs = {port.name: port.becomes for port in record.state_inputs}
    assert inputs == {name: f"next/{name}" for name in own.start(1)}
    session = onnxruntime.InferenceSession(str(tmp_path / "package" / "policy.onnx"), providers=["CPUExecutionProvider"])
    mine, theirs = own.start(3), onnx.start(3)
    raw = {name: array.copy() for name, array in mine.items()}
    for t in range(5):
        seen = shown(made, 3, 3 * t)
        mine, action = own.step(mine, seen)
        theirs, exported = onnx.step(theirs, seen)
        np.testing.assert_allclose(exported, action, atol=1e-5)
        masks = {"action_mask": np.ones((3, 3), bool)} if made.spec_.action_mask else {}
        answer, *after = session.run(["action", *inputs.values()], {"observation": seen, **masks, **raw})
        raw = dict(zip(inputs, after, strict=True))
        np.testing.assert_allclose(answer, action, atol=1e-5)
        for name, array in mine.items():
            np.testing.assert_allclose(raw[name], array, atol=1e-5)
            np.testing.assert_allclose(theirs[name], array, atol=1e-5)
    taken = read_torch_policy(tmp_path / "package")
    state, found = taken.step(taken.start(3), shown(made, 3))  # pyright: ignore[reportArgumentType]
    np.testing.assert_allclose(found, own.step(own.start(3), shown(made, 3))[1], atol=1e-6)
    assert state is not None


@pytest.mark.parametrize("ending", [".onnx", ".pt", ".pt2"])
def test_files_of_every_kind_are_written_and_compared(ending: str, tmp_path: Any) -> None:
    made = trained(DQN, LSTM)
    made.save_policy(tmp_path / f"policy{ending}")
    if ending != ".pt":
        return
    graph: Any = torch.jit.load(tmp_path / "policy.pt")
    state, policy = made.policy().start(2), made.policy()
    for t in range(4):
        seen = shown(made, 2, 2 * t)
        masks = {"action_mask": torch.ones(2, 3, dtype=torch.bool)}
        found, after = graph({"observation": torch.from_numpy(seen), **masks, **{n: torch.from_numpy(a) for n, a in state.items()}})
        state, action = policy.step(state, seen)
        np.testing.assert_array_equal(found.numpy(), action)
        np.testing.assert_allclose(after.numpy(), state["state/critic"], atol=1e-6)


def test_a_wrapper_keeps_the_memory_and_forgets_it_when_reset(tmp_path: Any) -> None:
    made = trained(BC)
    made.save_policy(tmp_path / "package")
    seen = shown(made, 4)
    for one in (made.as_stateful_wrapper(), StatefulWrapper(read_package(tmp_path / "package"))):
        first = [one.predict(x) for x in seen]
        assert not np.allclose(one.predict(seen[0]), first[0], atol=1e-4)
        one.reset()
        np.testing.assert_allclose([one.predict(x) for x in seen], first, atol=1e-6)
    with pytest.raises(ConfigError, match="The policy of BC remembers nothing, so there is nothing to wrap"):
        testing.maker(BC)().fit(testing.tiny_dataset(discrete=False), 1).as_stateful_wrapper()


def test_it_is_saved_and_goes_on(tmp_path: Any) -> None:
    made = trained(DQN)
    made.save(tmp_path / "saved")
    again: Any = load(tmp_path / "saved")
    data = testing.data_for(maker(DQN))
    name, gap = testing.largest_difference(made.fit(data, 4, 4).state()[0], again.fit(data, 4, 4).state()[0])
    assert gap == 0, name


def test_explorers_depart_from_what_is_remembered() -> None:
    made = trained(DQN)
    policy, seen = made.policy(), shown(made, 2)
    state = policy.start(2)
    for _ in range(3):
        state, _ = policy.step(state, seen)
    _, values = policy.propose("values", state, seen, step=0, seed=0)
    _, action = policy.step(state, seen)
    np.testing.assert_array_equal(values.argmax(1), action)
    _, fresh = policy.propose("values", policy.start(2), seen, step=0, seed=0)
    assert not np.allclose(values, fresh, atol=1e-3)
    drawing = trained(IQL).policy()
    with pytest.raises(ConfigError, match="acts on what came before"):
        drawing.log_prob(seen, np.zeros((2, 3), np.float32))


def test_noisy_layers_draw_beside_a_memory() -> None:
    made = trained(Rainbow, td_steps=1, q_function={"name": "mean", "noisy": 3.0})
    policy, seen = made.policy(), shown(made, 2)
    state, first = policy.start(2), []
    for step in range(20):
        state, action = policy.propose("draw", state, seen, step=step, seed=0)
        first.append(action)
    assert set(state) == {"state/critic"}
    assert len(np.unique(np.stack(first), axis=0)) > 1


@pytest.mark.parametrize("algorithm", [DQN, BC, DiscreteIQL])
def test_held_out_episodes_are_read_with_what_came_before(algorithm: type[Algorithm]) -> None:
    made = trained(algorithm)
    found = HeldOut(testing.data_for(maker(algorithm)))(made, 1)
    assert np.isfinite(list(found.values())).all()
    assert {"action_match", "action_error"} & set(found)
    assert any(name.endswith("_loss") for name in found)


@pytest.mark.parametrize("algorithm", [DQN, BC, *(pytest.param(a, marks=pytest.mark.long) for a in (IQL, DiscreteBCQ))])
def test_they_keep_the_contract(algorithm: type[Algorithm]) -> None:
    for check in testing.CHECKS:
        if testing.check_name(check) != "settings_matter":  # td_steps is refused
            check(maker(algorithm))
