"""Policies whose graph has inputs of its own: a memory that is handed on, and noise that is always drawn."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from d3ray import BC
from d3ray.algos import testing
from d3ray.algos.acting import remembering
from d3ray.algos.export.package import read_package, read_record
from d3ray.algos.export.packing import write_package
from d3ray.algos.judging.held_out import HeldOut
from d3ray.data.errors import ConfigError

from .toy_policies import DenoisingBC, RecurrentBC

DATA = testing.tiny_dataset(discrete=False)
SEEN = DATA.columns["observation"]


@pytest.mark.parametrize("algorithm", [RecurrentBC, DenoisingBC])
@pytest.mark.parametrize("check", testing.CHECKS, ids=testing.check_name)
def test_they_keep_the_contract(check, algorithm) -> None:
    check(testing.maker(algorithm))


@pytest.mark.parametrize("algorithm", [RecurrentBC, DenoisingBC])
def test_rows_of_a_stack_equal_single_runs_and_resume(algorithm) -> None:
    make = testing.maker(algorithm)
    testing.check_row_equals_single_run(make, n_steps=40)
    testing.check_resumes_bit_for_bit(make)


def test_a_memory_is_handed_on_as_the_loss_has_it() -> None:
    made = testing.maker(RecurrentBC)(dtype="float64", seed=1).fit(DATA, 5)
    steps = np.stack([SEEN[:6], SEEN[6:12]])  # two environments, six steps
    with torch.no_grad():
        together, last = made.fit_.nets().policy(torch.from_numpy(steps).double(), torch.zeros(2, 8, dtype=torch.float64))
    policy = made.policy()
    state = policy.start(2)
    assert set(state) == {"state/hidden"}
    for t in range(6):
        state, action = policy.step(state, steps[:, t])
        np.testing.assert_allclose(action, together[:, t].numpy(), rtol=1e-12)
    np.testing.assert_allclose(state["state/hidden"], last.numpy(), rtol=1e-12)
    with pytest.raises(ConfigError, match="acts on what came before"):
        made.predict(steps[:, 0])


def test_a_recurrent_policy_is_packaged_with_its_memory(tmp_path) -> None:
    made = testing.maker(RecurrentBC, observation_scaler="standard")(seed=1).fit(DATA, 5)
    write_package(made, tmp_path / "package")
    record = read_record(tmp_path / "package")
    assert [(p.name, p.becomes, p.shape) for p in record.state_inputs] == [("state/hidden", "next/state/hidden", ("batch", 8))]
    own, onnx = made.policy(), read_package(tmp_path / "package")
    states = [policy.start(3) for policy in (own, onnx)]
    for t in range(5):
        actions = []
        for k, policy in enumerate((own, onnx)):
            states[k], action = policy.step(states[k], SEEN[3 * t : 3 * t + 3])
            actions.append(action)
        np.testing.assert_allclose(actions[1], actions[0], atol=1e-5)


def test_noise_is_fed_by_seed_environment_and_decision(tmp_path) -> None:
    made = testing.maker(DenoisingBC, observation_scaler="standard")(seed=4).fit(DATA, 20)
    write_package(made, tmp_path / "package")
    (port,) = read_record(tmp_path / "package").noise_inputs
    assert (port.name, port.shape, port.distribution) == ("noise/chain", ("batch", 5, 3), "normal")
    own, onnx = made.policy(), read_package(tmp_path / "package")
    mine, theirs = own.start(4), onnx.start(4)
    same = np.repeat(SEEN[:1], 4, 0)
    drawn = []
    for _ in range(3):
        mine, action = own.step(mine, same)
        theirs, exported = onnx.step(theirs, same)
        np.testing.assert_allclose(exported, action, atol=1e-5)  # the same numbers, with torch and without
        drawn.append(action)
    assert len(np.unique(np.round(np.concatenate(drawn), 6), axis=0)) == 12  # each decision of each environment has its own
    np.testing.assert_array_equal(made.predict(SEEN[:9]), made.predict(SEEN[:9]))
    assert not np.allclose(made.sample_action(SEEN[:9]), made.sample_action(SEEN[:9]))


@pytest.mark.parametrize("algorithm", [RecurrentBC, DenoisingBC])
def test_they_are_judged_and_act_in_environments(algorithm) -> None:
    made = testing.maker(algorithm, action_scaler="min_max")(seed=1).fit(testing.tiny_dataset(discrete=False, reach=2.0), 4, 2)
    found = HeldOut(testing.tiny_dataset(discrete=False, reach=2.0))(made, 1)
    assert np.isfinite(list(found.values())).all()
    assert "action_error" in found


@pytest.mark.parametrize("algorithm", [DenoisingBC, BC])
def test_large_arrays_go_through_in_pieces_with_the_same_actions(algorithm, monkeypatch, tmp_path) -> None:
    """Pieces end within the rows; noise is that of the row, whatever piece it is in."""
    made = testing.maker(algorithm)(dtype="float64", seed=1).fit(DATA, 5)
    write_package(made, tmp_path / "package")
    seen = np.random.default_rng(0).normal(size=(70, SEEN.shape[1])).astype(np.float32)
    policies = made.policy(), read_package(tmp_path / "package")
    whole = [policy.predict(seen) for policy in policies]
    rows: list[int] = []
    monkeypatch.setattr(remembering, "PIECE", 32)
    for policy, expected in zip(policies, whole, strict=True):
        np.testing.assert_array_equal(policy.predict(seen), expected)
    handle = torch.nn.modules.module.register_module_forward_pre_hook(
        lambda module, inputs: rows.extend(len(x) for x in inputs if isinstance(x, torch.Tensor))
    )
    try:
        made.policy().predict(seen)
    finally:
        handle.remove()
    assert max(rows) == 32
