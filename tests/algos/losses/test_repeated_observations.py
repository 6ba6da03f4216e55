"""What sampled actions of images cost and give: one convolution a state, and the same losses, gradients and exported actions."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnxruntime
import pytest
import torch

from d3ray.algos.losses.sampled_actions import repeated
from d3ray.algos.networks.encoders import KeysEncoder, PixelEncoder, VectorEncoder
from d3ray.algos.networks.layers import Convolution
from d3ray.algos.networks.perceptrons import Repeated
from d3ray.algos.networks.pixels import PixelNetwork
from d3ray.algos.registry import algorithm_class
from d3ray.data.dataset import Dataset
from d3ray.data.spec import Box, Dict

IMAGE = Box(shape=(2, 6, 6), dtype="uint8")
BOTH = Dict(spaces={"eye": IMAGE, "arm": Box(shape=(5,)), "rest": Box(shape=(3,))})
SMALL: dict[str, Any] = {"filters": ((4, 3, 1), (6, 2, 2)), "feature_size": 8}
KINDS = {"image": PixelEncoder(**SMALL), "spectral norm": PixelEncoder(**SMALL, spectral_norm=True)}
EYES = KeysEncoder(hidden_units=(9,), encoders={"eye": PixelEncoder(**SMALL), "arm": VectorEncoder(hidden_units=(7,))})
B, N = 4, 3


def seen(*, both: bool) -> Any:
    generator = torch.Generator().manual_seed(1)
    image, arm, rest = (torch.randn(B, *shape, generator=generator, dtype=torch.float64) for shape in ((2, 6, 6), (5,), (3,)))
    return {"eye": image, "arm": arm, "rest": rest} if both else image


class Rows:
    """How many images each convolution saw."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __enter__(self) -> Rows:
        plain = Convolution.forward

        def watched(layer: Any, x: Any, first: Any = None) -> Any:
            self.seen.append(len(x))
            return plain(layer, x, first)

        self._patch = mock.patch.object(Convolution, "forward", watched)
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()


@pytest.mark.parametrize("members", [None, 3])
@pytest.mark.parametrize("kind", [*KINDS, "both"])
def test_repeated_images_are_convolved_once_and_give_what_copies_give(kind: str, members: int | None) -> None:
    torch.manual_seed(0)
    both = kind == "both"
    config, space = (EYES, BOTH) if both else (KINDS[kind], IMAGE)
    module = config.build(space, 2, members).double()
    observation, action = seen(both=both), torch.randn(N * B, 2, dtype=torch.float64)
    once = repeated(observation, N)
    assert isinstance(once, Repeated)
    outputs, gradients = [], []
    for given, rows in ((once, B), (once.copies(), N * B)):
        for first in (None, 2):
            with Rows() as convolved:
                outputs.append(module(given, action, first))
            assert set(convolved.seen) == {rows}
        gradients.append(torch.autograd.grad(outputs[-2].square().mean(), list(module.parameters())))
    for mine, copied in zip(outputs[:2], outputs[2:], strict=True):
        torch.testing.assert_close(mine, copied, rtol=1e-12, atol=1e-12)
    for mine, copied in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, copied, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("settings", [{"normalization": "batch"}, {"dropout_rate": 0.2}])
def test_what_tells_copies_apart_gets_copies(settings: dict[str, Any]) -> None:
    module = PixelEncoder(**SMALL, **settings).build(IMAGE, 2).double()
    with Rows() as convolved:
        module(repeated(seen(both=False), N), torch.zeros(N * B, 2, dtype=torch.float64))
    assert set(convolved.seen) == {N * B}


def test_vectors_are_copied() -> None:
    vector = torch.arange(6.0).reshape(2, 3)
    assert repeated(vector, 2).tolist() == [*vector.tolist(), *vector.tolist()]
    assert VectorEncoder(hidden_units=(4,)).build(IMAGE, 2).double()(  # an encoder of vectors reads images too
        repeated(seen(both=False), N), torch.zeros(N * B, 2, dtype=torch.float64)
    ).shape == (N * B, 4)


def images() -> Dataset:
    rng, n = np.random.default_rng(7), 60
    image, action = rng.integers(0, 256, (n, 2, 6, 6)).astype(np.uint8), rng.uniform(-1, 1, (n, 3)).astype(np.float32)
    return Dataset.from_arrays(image, action, rng.normal(size=n).astype(np.float32), np.arange(n) % 20 == 19, name="images")


def made(name: str, **settings: Any) -> Any:
    cls = algorithm_class(name)
    encoders = [field for field in cls.Config.model_fields if field.endswith("encoder") and field != "share_encoder"]
    settings = {"observation_scaler": "pixel", "batch_size": 8, "n_action_samples": 4, **settings}
    return cls(**dict.fromkeys(encoders, PixelEncoder(**SMALL)), **settings, dtype="float64", seed=1)


@pytest.mark.parametrize(
    ("name", "settings"), [("CQL", {}), ("BCQ", {"q_function": "iqn"}), ("MCQ", {}), ("BEAR", {"warmup_steps": 0})]
)
def test_training_on_images_is_that_on_their_copies(name: str, settings: dict[str, Any]) -> None:
    states, most = [], []
    never = mock.patch.object(PixelNetwork, "repeats", property(lambda _: False, lambda _, __: None))
    for how in (nullcontext(), never):
        with how, Rows() as convolved:
            states.append(made(name, **settings).fit(images(), n_steps=3, n_steps_per_epoch=3).state()[0])
        most.append(max(convolved.seen))
    assert most[0] < most[1]
    for key, tensor in states[0].items():
        torch.testing.assert_close(tensor, states[1][key], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["BCQ", "CQL"])
def test_what_acts_on_images_can_be_exported(name: str, tmp_path: Path) -> None:
    algorithm = algorithm_class(name)
    encoders = [field for field in algorithm.Config.model_fields if field.endswith("encoder") and field != "share_encoder"]
    settings = {"observation_scaler": "pixel", "batch_size": 8, "n_action_samples": 4}
    trained = algorithm(**dict.fromkeys(encoders, PixelEncoder(**SMALL)), **settings, seed=1).fit(images(), n_steps=3)
    trained.save_policy(tmp_path / "policy.onnx")
    session: Any = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"), providers=["CPUExecutionProvider"])
    for n in (1, 7):
        given = images().columns["observation"][:n]
        np.testing.assert_allclose(session.run(["action"], {"observation": given})[0], trained.predict(given), atol=1e-5)
