"""Encoders against plain torch, against their members one by one, and in training: alone, in a stack and without values."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from d3ray.algos import testing
from d3ray.algos.actor_critic.td3 import TD3
from d3ray.algos.imitation.bc import BC
from d3ray.algos.networks import encoders
from d3ray.algos.networks.encoders import (
    DefaultEncoder,
    DenseEncoder,
    EncoderConfig,
    KeysEncoder,
    PixelEncoder,
    VectorEncoder,
    register_encoder,
)
from d3ray.algos.networks.perceptrons import EncoderModule, Flat, KeysNetwork, Linear, VectorNetwork, vector_size
from d3ray.algos.networks.pixels import PixelNetwork
from d3ray.algos.networks.training import Pass, under_way
from d3ray.algos.registry import algorithm_class, algorithm_names
from d3ray.algos.stack import Stack
from d3ray.algos.values.dqn import DQN
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError
from d3ray.data.random import root_key
from d3ray.data.spec import Box, Dict, Discrete, Tuple

VECTOR, IMAGE = Box(shape=(5,)), Box(shape=(3, 12, 11), dtype="uint8")
BOTH = Dict(spaces={"eye": IMAGE, "arm": VECTOR, "mode": Discrete(n=3)})
SMALL = {"filters": [(4, 4, 2), (6, 3, 1)], "feature_size": 7}
KINDS: dict[str, tuple[EncoderConfig, Any]] = {
    "vector": (VectorEncoder(hidden_units=(8, 6), normalization="layer"), VECTOR),
    "dense": (DenseEncoder(hidden_units=(8, 6, 4), normalization="batch"), VECTOR),
    "pixel": (PixelEncoder(**SMALL, normalization="batch"), IMAGE),
    "pixel, layer norm": (PixelEncoder(**SMALL, normalization="layer", spectral_norm=True), IMAGE),
    "keys": (KeysEncoder(hidden_units=(9,), encoders={"eye": PixelEncoder(**SMALL), "arm": "dense"}, spectral_norm=True), BOTH),
    "keys without encoders": (KeysEncoder(hidden_units=(9,)), Dict(spaces={"a": VECTOR, "b": Discrete(n=3)})),
}


def seen(space: Any, n: int = 4) -> Any:
    """Observations as networks get them."""
    if isinstance(space, Dict):
        return {key: seen(part, n) for key, part in space.spaces.items()}
    return torch.arange(n) % 3.0 if isinstance(space, Discrete) else torch.randn(n, *space.shape)


def in_training(module: nn.Module, *inputs: Any, keep: bool = True) -> tuple[Any, dict[str, Tensor]]:
    """A pass of a loss that minimises the module, and the statistics that it leaves."""
    kept: dict[str, Tensor] = {}
    for path, layer in module.named_modules():
        if hasattr(layer, "path"):
            layer.path = path
    with under_way(Pass(root_key(5), torch.float32, training=True, statistics=kept if keep else None)):
        return module(*inputs), kept


def test_a_perceptron_is_affine_activation_normalisation() -> None:
    torch.manual_seed(0)
    module = VectorEncoder(hidden_units=(8, 6), activation="tanh", last_activation="none", normalization="layer").build(VECTOR, 2)
    for tensor in module.parameters():
        if tensor.ndim == 1:
            nn.init.normal_(tensor)
    first, _, norm, last, final = module.layers
    x, action = torch.randn(4, 5), torch.randn(4, 2)
    h = functional.layer_norm((torch.cat((x, action), 1) @ first.weight + first.bias).tanh(), (8,), norm.weight, norm.bias)
    h = functional.layer_norm(h @ last.weight + last.bias, (6,), final.weight, final.bias)
    torch.testing.assert_close(module(x, action), h)
    assert module.features == 6


def test_a_dense_encoder_sees_the_input_again() -> None:
    torch.manual_seed(0)
    module = DenseEncoder(hidden_units=(8, 6, 4)).build(VECTOR, 2)
    x, action = torch.randn(4, 5), torch.randn(4, 2)
    x_a = torch.cat((x, action), 1)
    one, two, three = (block[0] for block in module.layers.blocks)
    h = (x_a @ one.weight + one.bias).relu()
    h = (torch.cat((h, x_a), 1) @ two.weight + two.bias).relu()
    h = (torch.cat((h, x_a), 1) @ three.weight + three.bias).relu()
    torch.testing.assert_close(module(x, action), h)


def test_pixels_go_through_natures_convolutions_and_meet_the_action_after_them() -> None:
    torch.manual_seed(0)
    module = PixelEncoder().build(Box(shape=(4, 84, 84), dtype="uint8"), 2)
    x, action = torch.rand(2, 4, 84, 84), torch.randn(2, 2)
    h = x
    sizes = []
    for layer in module.convolutions:
        if hasattr(layer, "stride"):
            h = functional.conv2d(h, layer.weight, layer.bias, layer.stride).relu()
            sizes.append((*layer.weight.shape[:2], *layer.weight.shape[2:], layer.stride))
    assert sizes == [(32, 4, 8, 8, 4), (64, 32, 4, 4, 2), (64, 64, 3, 3, 1)]
    linear = module.layers[0]
    assert linear.weight.shape == (64 * 7 * 7 + 2, 512)
    torch.testing.assert_close(module(x, action), (torch.cat((h.flatten(1), action), 1) @ linear.weight + linear.bias).relu())


def test_images_may_have_their_channels_last() -> None:
    first, last = (PixelEncoder(**SMALL).build(Box(shape=shape, dtype="uint8")) for shape in ((3, 12, 11), (12, 11, 3)))
    last.load_state_dict(first.state_dict())
    x = torch.randn(4, 3, 12, 11)
    torch.testing.assert_close(last(x.permute(0, 2, 3, 1)), first(x))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("action_size", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_an_ensemble_is_its_members_side_by_side(kind: str, action_size: int, training: bool) -> None:
    config, space = KINDS[kind]
    torch.manual_seed(0)
    whole = config.build(space, action_size, members=3)
    x, action = seen(space), torch.randn(4, action_size) if action_size else None
    with torch.no_grad():
        for tensor in (*whole.parameters(), *(b for n, b in whole.named_buffers() if "running" in n)):
            tensor.add_(0.1 * torch.rand_like(tensor))
    run = (lambda *given: in_training(*given, keep=False)[0]) if training else (lambda module, *given: module(*given))
    out = run(whole, x, action)
    assert out.shape == (3, 4, whole.features)
    torch.testing.assert_close(run(whole, x, action, 2), out[:2])
    alone = config.build(space, action_size)
    for m in range(3):
        mine = {name: _member(tensor, m, alone.state_dict()[name]) for name, tensor in whole.state_dict().items()}
        alone.load_state_dict(mine)
        torch.testing.assert_close(run(alone, x, action), out[m], rtol=1e-4, atol=1e-5)


def _member(tensor: Tensor, m: int, like: Tensor) -> Tensor:
    """The part of an ensemble's tensor that is the m-th member's, in the shape that it has alone."""
    if tensor.ndim > like.ndim:
        return tensor[m].reshape(like.shape)
    return tensor.reshape(3, *like.shape)[m]  # normalisation of images: members lie along the channels


@pytest.mark.parametrize("kind", KINDS)
def test_encoders_run_in_a_stack_and_without_values(kind: str) -> None:
    config, space = KINDS[kind]
    torch.manual_seed(0)
    modules = [config.build(space, 2, members=2) for _ in range(3)]
    x, action = seen(space), torch.randn(4, 2)
    parameters, buffers = torch.func.stack_module_state(modules)

    def one(tensors: Any) -> Tensor:
        return torch.func.functional_call(modules[0], tensors, (x, action))

    with under_way(Pass(root_key(5), torch.float32, training=True, statistics=None)):
        out = torch.func.vmap(one)({**parameters, **buffers})
        torch.testing.assert_close(out, torch.stack([module(x, action) for module in modules]), rtol=1e-4, atol=1e-5)
    bare = modules[0].to("meta")
    there = {k: v.to("meta") for k, v in x.items()} if isinstance(x, dict) else x.to("meta")
    assert in_training(bare, there, action.to("meta"))[0].shape == out.shape[1:]


def test_the_default_suits_the_space() -> None:
    big = Box(shape=(3, 40, 40), dtype="uint8")
    assert isinstance(DefaultEncoder().build(VECTOR), VectorNetwork)
    assert isinstance(DefaultEncoder().build(Box(shape=(3, 40, 40))), VectorNetwork)  # floats are no image
    assert isinstance(DefaultEncoder().build(big), PixelNetwork)
    assert isinstance(DefaultEncoder().build(Dict(spaces={"a": VECTOR, "b": Discrete(n=2)})), VectorNetwork)
    mixed = DefaultEncoder(activation="tanh").build(Tuple(spaces=(VECTOR, Dict(spaces={"eye": big}))))
    assert isinstance(mixed, KeysNetwork)
    assert (mixed.keys, mixed.rest) == (["1/eye"], ["0"])
    assert isinstance(mixed.layers[1], nn.Tanh)
    wide = DefaultEncoder(hidden_units=(7, 5), normalization="layer")
    assert str(wide.build(VECTOR)) == str(VectorEncoder(hidden_units=(7, 5), normalization="layer").build(VECTOR))
    assert str(wide.build(big)) == str(PixelEncoder(normalization="layer").build(big))
    assert isinstance(mixed.parts[0].convolutions[1], nn.Tanh)


def test_keys_are_encoded_each_by_its_own() -> None:
    torch.manual_seed(0)
    module = KINDS["keys"][0].build(BOTH, 2)
    x, action = seen(BOTH), torch.randn(4, 2)
    arm, eye = module.parts
    assert module.keys == ["arm", "eye"]
    mode = functional.one_hot(x["mode"].long(), 3).float()
    joint = torch.cat((arm(x["arm"]), eye(x["eye"]), mode, action), 1)
    torch.testing.assert_close(module(x, action), module.layers(joint))


@pytest.mark.parametrize("how", ["lecun_normal", "xavier_uniform", "orthogonal"])
def test_initialisers_are_torchs(how: Literal["lecun_normal", "xavier_uniform", "orthogonal"]) -> None:
    torch.manual_seed(0)
    config = PixelEncoder(filters=((64, 8, 4),), feature_size=300, initializer=how, initial_bias=0.1)
    module = config.build(Box(shape=(4, 20, 20), dtype="uint8"), members=2)
    convolution, linear = module.convolutions[0], module.layers[0]
    assert (convolution.bias == 0.1).all()
    assert (linear.bias == 0.1).all()
    for weight in (convolution.weight[1].detach(), linear.weight[1].detach().T):
        like = torch.empty_like(weight)
        if how == "orthogonal":
            flat = weight.flatten(1)
            gram = flat @ flat.T if flat.shape[0] < flat.shape[1] else flat.T @ flat
            torch.testing.assert_close(gram, torch.eye(len(gram)), rtol=0, atol=1e-5)
        elif how == "xavier_uniform":
            nn.init.xavier_uniform_(like)
            assert float(weight.abs().max()) == pytest.approx(float(like.abs().max()), rel=1e-2)
        else:
            nn.init.kaiming_normal_(like, nonlinearity="linear")
            assert float(weight.std()) == pytest.approx(float(like.std()), rel=0.03)


# ---- in training


def pictures(*, discrete: bool, kind: str = "both", size: tuple[int, int] = (12, 11)) -> Dataset:
    rng = np.random.default_rng(7)
    n = 60
    image, arm = rng.integers(0, 256, (n, 3, *size)).astype(np.uint8), rng.normal(size=(n, 5)).astype(np.float32)
    observation: Any = {"eye": image, "arm": arm} if kind == "both" else image
    action = rng.integers(0, 3, n) if discrete else rng.uniform(-1, 1, (n, 2)).astype(np.float32)
    reward, ends, extra = rng.normal(size=n).astype(np.float32), np.arange(n) % 20 == 19, {"cost": np.ones(n)}
    return Dataset.from_arrays(observation, action, reward, ends, extra=extra, name="pictures")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (
            lambda **run: DQN(
                encoder=PixelEncoder(**SMALL, normalization="batch", dropout_rate=0.2), n_critics=2, batch_size=8, **run
            ),
            "image",
        ),
        (
            lambda **run: TD3(
                actor_encoder=KeysEncoder(hidden_units=(9,), encoders={"eye": PixelEncoder(**SMALL), "arm": "vector"}),
                critic_encoder=KeysEncoder(hidden_units=(9,), encoders={"eye": PixelEncoder(**SMALL)}, spectral_norm=True),
                observation_scaler={"eye": "pixel"},
                batch_size=8,
                **run,
            ),
            "both",
        ),
    ],
    ids=["DQN", "TD3"],
)
def test_images_are_learned_from_alone_and_in_a_stack(make: Any, kind: str) -> None:
    data = pictures(discrete=make().actions == "discrete", kind=kind)
    stack = Stack(make(dtype="float64"), (3, 4)).fit(data, 4)
    alone = make(dtype="float64", seed=4).fit(data, 4)
    name, gap = testing.largest_difference(stack.seed(1).state()[0], alone.state()[0])
    assert gap < 1e-11, name


VECTORS_ALONE = (
    "ProbabilisticEnsemble",
    "MOPO",
    "COMBO",
    "MOBILE",
    "MOReL",
    "RAMBO",
    "MBPO",
    "IDQL",  # by its default encoder: test_residual_layers_refuse_images
    "SHARSA",  # whose goals are vectors: tests/algos/goal_conditioned/test_sharsa.py
)  # which refuse images: tests/algos/model_based
PRESETS = {
    name: (None, *({"d3rlpy"} & algorithm_class(name).presets.keys())) for name in algorithm_names() if name not in VECTORS_ALONE
}


@pytest.mark.parametrize(("name", "preset"), [(name, preset) for name, presets in PRESETS.items() for preset in presets])
def test_every_algorithm_convolves_images_by_default(name: str, preset: str | None) -> None:
    """No network of any algorithm takes the bytes of an image for a vector; nor with d3rlpy's settings."""
    kind = algorithm_class(name)
    settings: dict[str, Any] = {
        "batch_size": 4,
        "device": "cpu",
        **({"context": 3} if "context" in kind.Config.model_fields else {}),
    }
    data = pictures(discrete=kind.actions == "discrete", kind="image", size=(36, 36))
    if "algo" in kind.Config.model_fields:  # whose policy is judged
        settings["algo"] = algorithm_class("DQN" if kind.actions == "discrete" else "TD3")().build_with_dataset(data)
    made = kind(**settings) if preset is None else kind.from_preset(preset, **settings)
    made.fit(data, 1)
    modules = {network: module for network, module in made.fit_.learner.modules.items() if network != "dynamics"}  # of latents
    parts = [part for module in modules.values() for part in module.modules()]
    assert any(isinstance(part, PixelNetwork) for part in parts)
    assert not any(isinstance(part, VectorNetwork) for part in parts)


def test_residual_layers_refuse_images() -> None:
    data = pictures(discrete=False, kind="image", size=(36, 36))
    with pytest.raises(ConfigError, match=r"The residual encoder is one of vectors, .*: choose impala"):
        algorithm_class("IDQL")(batch_size=4).fit(data, 1)


def test_a_network_with_spectral_norm_keeps_the_contract() -> None:
    make = testing.maker(TD3, actor_encoder="dense", critic_encoder=VectorEncoder(hidden_units=(16, 16), spectral_norm=True))
    trained = make(seed=1).fit(testing.data_for(make), 0)
    vectors = {name: tensor for name, tensor in trained.state()[0].items() if name.endswith("spectral.right")}
    assert len(vectors) == 4  # of two layers, of the critics and of their targets
    after = trained.fit(testing.data_for(make), 4).state()[0]
    assert not any(torch.equal(after[name], tensor) for name, tensor in vectors.items())  # power iteration goes on
    testing.check_row_equals_single_run(make, n_steps=20)
    testing.check_resumes_bit_for_bit(make)
    testing.check_update_reads_no_value(make)


# ---- by name


class Squared(EncoderConfig):
    """Features are squares of an affine map."""

    name: Literal["squared"] = "squared"
    width: int = 4

    def build(self, observation: Any, action_size: int = 0, members: int | None = None) -> EncoderModule:
        return SquaredNetwork(observation, action_size, members, self.width)


class SquaredNetwork(EncoderModule):
    def __init__(self, observation: Any, action_size: int, members: int | None, width: int) -> None:
        super().__init__()
        self.flat, self.linear = Flat(observation), Linear(vector_size(observation) + action_size, width, members)
        self.features = width

    def forward(self, observation: Any, action: Tensor | None = None, first: int | None = None) -> Tensor:
        x = self.flat(observation)
        return self.linear(x if action is None else torch.cat((x, action), -1))[:first].square()


def test_a_users_own_encoder_is_saved_and_read_by_its_name(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders.KINDS, "known", dict(encoders.KINDS.known))
    assert register_encoder(Squared) is Squared
    data = testing.tiny_dataset(discrete=False)
    made = BC(encoder={"name": "squared", "width": 6}).fit(data, 2)
    assert made.config_.encoder == Squared(width=6)
    made.save(tmp_path / "made")
    again = BC.load(tmp_path / "made")
    assert again.config_.encoder == Squared(width=6)
    x = np.zeros((2, 5), "f4")
    np.testing.assert_array_equal(again.predict(x), made.predict(x))
    with pytest.raises(ConfigError, match="There is an encoder 'vector' already"):
        register_encoder(type("Mine", (EncoderConfig,), {"__annotations__": {"name": Literal["vector"]}, "name": "vector"}))
    with pytest.raises(ConfigError, match="The encoder Nameless needs a name"):
        register_encoder(type("Nameless", (EncoderConfig,), {}))
    monkeypatch.setattr(encoders.KINDS, "known", {"vector": VectorEncoder})
    with pytest.raises(ConfigError, match="there is no such encoder; choose from 'vector'"):
        BC.load(tmp_path / "made")


def test_d3rlpys_names_are_read() -> None:
    read = BC(encoder={"hidden_units": [8], "use_batch_norm": True, "use_dense": True}).check_settings().encoder
    assert read == DenseEncoder(hidden_units=(8,), normalization="batch")
    assert BC(encoder={"use_layer_norm": True, "use_dense": False}).check_settings().encoder == VectorEncoder(normalization="layer")


@pytest.mark.parametrize(
    ("encoder", "space", "sentence"),
    [
        ("vectr", None, "encoder is 'vectr'; there is no such encoder; did you mean 'vector'?"),
        ({"hidden_units": []}, None, "encoder.hidden_units is []; "),
        ({"hidden_units": [8, 0]}, None, "encoder.hidden_units.1 is 0; input should be greater than 0."),
        ({"name": "pixel", "feature_sise": 3}, None, "BC has no setting 'encoder.feature_sise'; did you mean 'feature_size'?"),
        ({"name": "pixel", "filters": [[8, 4]]}, None, "encoder.filters.0.2"),
        ({"name": "keys", "encoders": {"eye": {"name": "pixel", "feature_size": 0}}}, None, "encoders.eye.feature_size is 0; "),
        ({"use_batch_norm": True, "use_layer_norm": True}, None, "choose one normalization, 'batch' or 'layer'."),
        (3, None, "it must be a name or settings with a name"),
        ("pixel", "image", "need images of 36 × 36 or more, and these are 12 × 11: set smaller filters of encoder, or "),
        ("pixel", "both", "The pixel encoder needs images of three axes, and observations are a dict with the keys eye, arm."),
        ("keys", "image", "The keys encoder needs a dict or a tuple, and observations are of the shape (3, 12, 11)."),
        ({"name": "keys", "encoders": {"eyes": "pixel"}}, "both", "Observations have no key 'eyes' to encode; did you mean 'eye'?"),
    ],
)
def test_wrong_encoders_end_in_one_sentence(encoder: Any, space: str | None, sentence: str) -> None:
    made = BC(encoder=encoder)
    with pytest.raises(ConfigError) as caught:
        made.check_settings() if space is None else made.fit(pictures(discrete=False, kind=space), 1)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
