"""The residual encoder over images against plain torch modules, its pooling against a loop, and a policy from pixels."""

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from d3ray import CRL, FQL, GCBC, GCIQL, GCIVL, Dataset
from d3ray.algos.networks.encoders import ImpalaEncoder
from d3ray.algos.networks.impala import _pooled
from d3ray.algos.networks.perceptrons import Repeated
from d3ray.data.errors import ConfigError
from d3ray.data.spec import Box, Dict, Tuple

SMALL = ImpalaEncoder(stacks=(4, 6), feature_size=8, hidden_units=(7, 5), activation="relu")


@pytest.mark.parametrize("size", [(6, 6), (7, 6), (7, 9), (1, 2)])
def test_pooling_takes_the_largest_of_three_by_three_as_jax_places_them(size):
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    height, width = size
    wanted = np.full((2, 3, -(-height // 2), -(-width // 2)), -np.inf)
    before = [((-(-n // 2) - 1) * 2 + 3 - n) // 2 for n in size]  # "SAME": the smaller half of what is missing comes first
    for i in range(wanted.shape[2]):
        for j in range(wanted.shape[3]):
            rows = [r for r in range(2 * i - before[0], 2 * i - before[0] + 3) if 0 <= r < height]
            columns = [c for c in range(2 * j - before[1], 2 * j - before[1] + 3) if 0 <= c < width]
            wanted[:, :, i, j] = x.numpy()[:, :, rows][:, :, :, columns].max((2, 3))
    np.testing.assert_array_equal(_pooled(x), wanted)


def test_it_is_what_plain_torch_modules_make():
    module = SMALL.build(Box(shape=(3, 8, 8), dtype="uint8"), 2).double()
    x, action = torch.randn(4, 3, 8, 8, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)

    def convolved(layer, x):
        plain = nn.Conv2d(layer.weight.shape[1], layer.weight.shape[0], 3, padding=1).double()
        plain.load_state_dict({"weight": layer.weight, "bias": layer.bias})
        return plain(x)

    h = x
    for stack in list(module.stacks)[:2]:
        h = nn.functional.max_pool2d(nn.functional.pad(convolved(stack.first, h), (0, 1, 0, 1), value=-1e9), 3, 2)
        for block in stack.blocks:
            h = h + convolved(block[3], convolved(block[1], h.relu()).relu())
    linear = module.seen[0]
    h = nn.functional.gelu(h.relu().flatten(1) @ linear.weight + linear.bias, approximate="tanh")
    h = torch.cat((h, action), 1)
    for layer in (module.layers[0], module.layers[2]):
        h = (h @ layer.weight + layer.bias).relu()
    torch.testing.assert_close(module(x, action), h, rtol=1e-10, atol=1e-12)


def test_repeated_images_and_members_are_seen_once_and_alike():
    module = SMALL.build(Box(shape=(8, 9, 3), dtype="uint8"), 2, members=3)
    x, action = torch.randn(4, 8, 9, 3), torch.randn(8, 2)
    found = module(Repeated(x, 2), action)
    assert found.shape == (3, 8, 5)
    torch.testing.assert_close(found, module(torch.cat((x, x)), action))
    torch.testing.assert_close(module(x, action[:4], 1), module(x, action[:4])[:1])


def test_images_of_a_dict_are_seen_as_one_of_all_their_channels():
    alone = SMALL.build(Box(shape=(8, 9, 4), dtype="uint8"), 2, members=3)
    both = SMALL.build(
        Dict(spaces={"observation": Box(shape=(8, 9, 3), dtype="uint8"), "goal": Box(shape=(1, 8, 9), dtype="uint8")}), 2, 3
    )
    both.load_state_dict(alone.state_dict())
    x, goal, action = torch.randn(4, 8, 9, 3), torch.randn(4, 1, 8, 9), torch.randn(8, 2)
    shown = {"goal": goal, "observation": x}
    wanted = alone(torch.cat((x, goal.movedim(1, 3)), 3), action[:4])
    torch.testing.assert_close(both(shown, action[:4]), wanted)
    assert both(Repeated(shown, 2), action).shape == (3, 8, 5)


@pytest.mark.parametrize(
    ("space", "sentence"),
    [
        (Box(shape=(8,), dtype="float32"), "impala encoder needs images of three axes"),
        (Tuple(spaces=(Box(shape=(8, 8, 3), dtype="uint8"),)), "impala encoder needs images of three axes"),
        (
            Dict(spaces={"eye": Box(shape=(8, 8, 3), dtype="uint8"), "wrist": Box(shape=(6, 8, 3), dtype="uint8")}),
            "needs images of one height and width, and observations have 6 × 8 and 8 × 8",
        ),
    ],
)
def test_what_is_no_image_is_refused(space, sentence):
    with pytest.raises(ConfigError, match=sentence):
        SMALL.build(space)


@pytest.mark.parametrize("kind", [GCBC, GCIVL, GCIQL, CRL])
def test_a_policy_that_is_shown_its_goal_trains_and_is_exported(kind, tmp_path):
    rng, n = np.random.default_rng(0), 60
    arrays = {"observations": rng.integers(0, 255, (n, 16, 16, 3), dtype=np.uint8), "actions": rng.uniform(-1, 1, (n, 2))}
    data = Dataset.from_arrays(**arrays, rewards=np.zeros(n), terminated=np.arange(n) % 12 == 11)
    encoders = {name: SMALL for name in ("actor_encoder", "critic_encoder", "value_encoder") if name in kind.Config.model_fields}
    small = {**encoders, "batch_size": 8}
    made = kind.from_preset("ogbench-pixels" if kind is GCBC else "ogbench-visual-antmaze-medium-navigate", **small).fit(
        data, 4, 4, show_progress=False
    )
    made.save_policy(tmp_path / "policy.onnx")
    shown, goal = rng.integers(0, 255, (2, 3, 16, 16, 3), dtype=np.uint8)
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    (action,) = session.run(None, {"observation/observation": shown, "observation/goal": goal})
    np.testing.assert_allclose(action, made.predict({"observation": shown, "goal": goal}), atol=1e-5)
    assert np.abs(action - made.predict({"observation": shown, "goal": goal[::-1]})).max() > 1e-7


def test_a_policy_from_pixels_trains_and_is_exported(tmp_path):
    rng, n = np.random.default_rng(0), 120
    arrays = {"observations": rng.integers(0, 255, (n, 16, 16, 3), dtype=np.uint8), "actions": rng.uniform(-1, 1, (n, 2))}
    data = Dataset.from_arrays(**arrays, rewards=rng.normal(size=n), terminated=np.arange(n) % 12 == 11)
    small = dict.fromkeys(("actor_encoder", "flow_encoder", "critic_encoder"), SMALL)
    made = FQL.from_preset("pixels", batch_size=8, flow_steps=2, **small).fit(data, 4, 4, show_progress=False)
    made.save_policy(tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    assert {port.name for port in session.get_inputs()} == {"observation", "noise/noise"}
    shown = rng.integers(0, 255, (3, 16, 16, 9), dtype=np.uint8)
    noise = rng.normal(size=(3, 2)).astype(np.float32)
    (action,) = session.run(None, {"observation": shown, "noise/noise": noise})
    assert action.shape == (3, 2) and np.abs(action).max() <= 1  # noqa: PT018
