"""What benchmarks ask of d3rlpy 2.8.1, in a process of its own and its own environment: see `workers.py`.

d3rlpy runs as its users run it, less what costs time and is not training: no files are logged, no progress is shown, nothing is
evaluated while a measurement runs. What a request does not name (networks, batch size, Adam's ε, scalers, …) is d3rlpy's default.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import d3rlpy
import gymnasium
import numpy as np
import torch
from d3rlpy.algos.qlearning.torch import awac_impl, bc_impl, bear_impl
from d3rlpy.constants import PositionEncodingType
from d3rlpy.logging import NoopAdapterFactory
from d3rlpy.models.encoders import VectorEncoderFactory
from d3rlpy.models.q_functions import IQNQFunctionFactory, MeanQFunctionFactory, QRQFunctionFactory
from d3rlpy.models.torch import ImitationLoss, VAEDecoder, build_gaussian_distribution
from d3rlpy.optimizers import AdamFactory
from d3rlpy.torch_utility import TorchMiniBatch, TorchTrajectoryMiniBatch
from fidelity_side import Named, compare, layers
from torch import nn
from workers import serve, timed

QUIET: dict[str, Any] = {"logger_adapter": NoopAdapterFactory(), "show_progress": False}


@cache
def open_dataset(path: str) -> d3rlpy.dataset.ReplayBuffer:
    """Arrays of an .npz file, as `for_peer` in `arrays.py` lays them out; images are stacked four at a time."""
    with np.load(path) as arrays:
        names = ("observations", "actions", "rewards", "terminals", "timeouts")
        observations, *others = (arrays[name] for name in names)
    picker = d3rlpy.dataset.FrameStackTransitionPicker(4) if observations.ndim == 4 else None
    return d3rlpy.dataset.MDPDataset(observations, *others, transition_picker=picker)


def make(name: str, settings: dict[str, Any], device: str) -> Any:
    """An algorithm; settings as `configured`'s."""
    return configured(getattr(d3rlpy.algos, f"{name}Config"), settings).create(device=device)


def judge(name: str, settings: dict[str, Any], device: str, judged: Any) -> Any:
    """FQE or DiscreteFQE of an algorithm that is built."""
    return getattr(d3rlpy.ope, name)(judged, configured(d3rlpy.ope.FQEConfig, settings), device=device)


def configured(config: Any, settings: dict[str, Any]) -> Any:
    """A config; `hidden_units` (of every network), `epsilon` (Adam's), `q_function` and scalers are made d3rlpy's."""
    settings = dict(settings)
    if hidden := settings.pop("hidden_units", None):
        for network in ("", "actor_", "critic_", "value_", "imitator_"):
            if (field := f"{network}encoder_factory") in config.__dataclass_fields__:
                settings[field] = VectorEncoderFactory(hidden_units=list(hidden))
    if epsilon := settings.pop("epsilon", None):
        settings["optim_factory"] = AdamFactory(eps=epsilon)
    if q_function := settings.pop("q_function", None):
        kinds = {"mean": MeanQFunctionFactory, "qr": QRQFunctionFactory, "iqn": IQNQFunctionFactory}
        settings["q_func_factory"] = kinds[q_function["name"]](**{k: v for k, v in q_function.items() if k != "name"})
    if settings.pop("action_scaler", None) == "min_max":
        settings["action_scaler"] = d3rlpy.preprocessing.MinMaxActionScaler()
    if settings.pop("observation_scaler", None) == "pixel":
        settings["observation_scaler"] = d3rlpy.preprocessing.PixelObservationScaler()
    if scaler := settings.pop("reward_scaler", None):
        settings["reward_scaler"] = d3rlpy.preprocessing.MultiplyRewardScaler(scaler["multiplier"])
    return config(**settings)


class Speed:
    """What is being measured: an algorithm or a sampler; set up once and warmed up."""

    algorithm: Any
    dataset: d3rlpy.dataset.ReplayBuffer
    batch_size: int
    device: str

    def set_up_fit(self, dataset: str, name: str, settings: dict[str, Any], device: str, warm: int) -> None:
        """`warm` gradient steps are done and not measured."""
        self.dataset, self.device = open_dataset(dataset), device
        d3rlpy.seed(0)
        if judged := settings.get("judged"):
            (policy := make(judged, {}, device)).build_with_dataset(self.dataset)
            self.algorithm = judge(name, {k: v for k, v in settings.items() if k != "judged"}, device, policy)
        else:
            self.algorithm = make(name, settings, device)
        self.fit(warm)

    def fit(self, n: int) -> dict[str, float]:
        """A whole call of `fit`: draws, updates, metrics."""
        return timed(lambda: self.algorithm.fit(self.dataset, n_steps=n, n_steps_per_epoch=n, **QUIET), self.device)

    def set_up_draws(self, dataset: str, batch_size: int, device: str, warm: int) -> None:
        """Batches of observation, action, reward, terminal, next observation and next action, as NumPy arrays."""
        self.dataset, self.batch_size, self.device = open_dataset(dataset), batch_size, device
        self.draw(warm)

    def draw(self, n: int) -> dict[str, float]:
        """`n` batches."""

        def work() -> None:
            for _ in range(n):
                self.dataset.sample_transition_batch(self.batch_size)

        return timed(work, self.device)


# ---- the learning table


def learn(
    dataset: str,
    name: str,
    settings: Mapping[str, Any],
    seed: int,
    n_steps: int,
    every: int,
    environment: str,
    reset_seeds: list[int],
) -> dict[str, Any]:
    """Trains and evaluates the greedy policy every so many gradient steps, in the same episodes each time."""
    data, env, begin = open_dataset(dataset), gymnasium.make(environment), time.perf_counter()
    d3rlpy.seed(seed)
    settings = dict(settings)
    target = settings.pop("target_return", None)
    learner = make(name, settings, "cpu:0")
    evaluations = []

    def look(learner: Any, step: int) -> None:
        returns = [play(learner if target is None else learner.as_stateful_wrapper(target), env, one) for one in reset_seeds]
        evaluations.append({"step": step, "return": float(np.mean(returns)), "std": float(np.std(returns))})

    if target is None:
        for epoch, _ in learner.fitter(data, n_steps=n_steps, n_steps_per_epoch=every, **QUIET):
            look(learner, epoch * every)
    else:  # what acts for a return has no `fitter`
        seen = lambda learner, _, step: look(learner, step) if step % every == 0 else None  # noqa: E731
        learner.fit(data, n_steps=n_steps, n_steps_per_epoch=every, callback=seen, **QUIET)
    return {"evaluations": evaluations, "seconds": time.perf_counter() - begin}


def play(learner: Any, env: Any, seed: int) -> float:
    """The return of one episode of an algorithm, or of what acts for a return and remembers."""
    observation, _ = env.reset(seed=seed)
    total, reward, ended = 0.0, 0.0, False
    while not ended:
        observation = np.asarray(observation, np.float32)
        remembers = hasattr(learner, "reset")
        action = learner.predict(observation, float(reward)) if remembers else learner.predict(observation[None])[0]
        observation, reward, terminated, truncated, _ = env.step(action)
        total, ended = total + float(reward), terminated or truncated
    return total


# ---- the fidelity table: see `fidelity_side.py`

POLICY = {"_fc": "head", "_mu": "mean", "_logstd": "log_std"}
CRITIC = {"_fc": "head", "_embed": "embed"}


def transformer_layers(n: int) -> dict[str, str]:
    """What our side calls the layers and lone parameters of a Decision Transformer of up to n blocks."""
    names = {"_rtg_embed": "body.embed_return", "_action_embed": "body.embed_action", "_output": "head"}
    names["_position_encoding._embed.weight"] = names["_position_encoding._global_position_embedding.weight"] = "body.timestep"
    names |= {"_position_encoding._block_position_embedding._parameter": "body.place"}
    norms = {"_embed_ln": "body.norm", "_gpt2._layer_norm": "body.transformer.norm"}
    for k in range(n):
        theirs, ours = f"_gpt2._transformer.{k}", f"body.transformer.blocks.{k}"
        norms |= {f"{theirs}._layer_norm1": f"{ours}.attention_norm", f"{theirs}._layer_norm2": f"{ours}.perceptron_norm"}
        kinds = {"_q": "query", "_k": "key", "_v": "value", "_proj": "out"}
        names |= {f"{theirs}._attention.{their}": f"{ours}.attention.{our}" for their, our in kinds.items()}
        names |= {f"{theirs}._mlp._l1": f"{ours}.perceptron.0", f"{theirs}._mlp._l2": f"{ours}.perceptron.2"}
    return names | {f"{their}.{kind}": f"{our}.{kind}" for their, our in norms.items() for kind in ("weight", "bias")}


# What d3rlpy calls a network, what our side calls it, and its layers; a list is an ensemble.
NETWORKS = {
    "policy": ("policy", POLICY),
    "imitator": ("policy", POLICY),
    "q_funcs": ("critic", CRITIC),
    "value_func": ("value", {"_fc": "head"}),
    "log_temp": ("temperature", {"_parameter": "log"}),
    "log_alpha": ("alpha", {"_parameter": "log"}),
    "vae_encoder": ("vae_encoder", {"_mu": "mean", "_logstd": "log_std"}),
    "vae_decoder": ("vae_decoder", {"_fc": "head"}),
    "perturbation": ("perturbation", {"_fc": "head"}),
    "transformer": ("policy", transformer_layers(6)),
}
TARGETS = {"targ_policy": "policy", "targ_q_funcs": "q_funcs", "targ_perturbation": "perturbation"}


def named(modules: Any, targets: bool) -> dict[str, Named]:
    """Parameters of the networks, or of the target networks, by `NETWORK/MEMBER`."""
    found: dict[str, Named] = {}
    for theirs in TARGETS if targets else NETWORKS:
        if not hasattr(modules, theirs):
            continue
        ours, names = NETWORKS[TARGETS[theirs] if targets else theirs]
        module = getattr(modules, theirs)
        members = list(module) if isinstance(module, nn.ModuleList) else [module]
        if theirs == "imitator" and hasattr(modules, "q_funcs"):
            critics = {id(parameter) for parameter in modules.q_funcs.parameters()}  # whose encoder it may share
            mine = layers(module, names).items()
            found["imitator/0"] = {name: parameter for name, parameter in mine if id(parameter) not in critics}
            continue
        found |= {f"{ours}/{k}": layers(member, names) for k, member in enumerate(members)}
    return found


def update(arrays: str, answer: str, algorithm: Mapping[str, Any], actions: int, step: int, dtype: str) -> None:
    """One update at gradient step `step` (from 0), on the weights, the batch and the draws of a file."""
    torch.set_default_dtype(getattr(torch, dtype))
    settings = dict(algorithm)
    midpoints, likelihood, normal = (settings.pop(name, False) for name in ("midpoints", "likelihood", "normal_target"))
    if "position_encoding_type" in settings:
        settings["position_encoding_type"] = PositionEncodingType(settings["position_encoding_type"])
    name = settings.pop("name")
    judged = Judged()
    learner = judge(name, settings, "cpu", SimpleNamespace(impl=judged)) if name.endswith("FQE") else make(name, settings, "cpu")
    with np.load(arrays) as given:
        parts = {name.removeprefix("batch/"): torch.from_numpy(given[name]) for name in given if name.startswith("batch/")}
    column = {name: part[:, None] if part.ndim == 1 else part for name, part in parts.items()}
    if "mask" in parts:
        update_of_stretches(arrays, answer, learner, parts, actions, step)
        return
    batch = TorchMiniBatch(
        observations=column["observation"],
        actions=column["action"],
        rewards=column["reward"],
        next_observations=column["next_observation"],
        next_actions=column["next_action"],
        returns_to_go=column["return_to_go"],
        terminals=column["terminated"],
        intervals=torch.ones_like(column["reward"]),
        device="cpu",
    )
    judged.action = parts["next_action"]
    learner.create_impl((parts["observation"].shape[1],), actions)
    modules = learner.impl.modules
    with (
        mock.patch.object(VAEDecoder, "forward", decoded),
        mock.patch.object(bear_impl.BEARImpl, "update_alpha", step_of_alpha),
        mock.patch.object(torch, "linspace", at_midpoints) if midpoints else nullcontext(),
        mock.patch.object(bc_impl, "compute_stochastic_imitation_loss", negative_likelihood) if likelihood else nullcontext(),
        mock.patch.object(awac_impl.AWACImpl, "compute_target", target_of_a_normal_draw) if normal else nullcontext(),
    ):
        targets = one_network(modules) if name == "NFQ" else named(modules, True)
        compare(arrays, answer, named(modules, False), targets, lambda: learner.impl.update(batch, step))


class Judged:
    """A policy that does at the next observations what the batch says, as FQE asks d3rlpy's implementations."""

    action: torch.Tensor

    def predict_best_action(self, x: torch.Tensor) -> torch.Tensor:
        return self.action


def one_network(modules: Any) -> dict[str, Named]:
    """Has NFQ's copy of its network, made after every step, be that network; so no target is left to compare."""
    for copy, network in zip(modules.targ_q_funcs.parameters(), modules.q_funcs.parameters(), strict=True):
        copy.data = network.data
    return {}


def update_of_stretches(arrays: str, answer: str, learner: Any, parts: Mapping[str, torch.Tensor], actions: int, step: int) -> None:
    """The same of an algorithm over stretches of episodes."""
    batch = TorchTrajectoryMiniBatch(
        observations=parts["observation"],
        actions=parts["action"],
        rewards=parts["reward"][..., None],
        returns_to_go=parts["return_to_go"][..., None],
        terminals=torch.zeros_like(parts["reward"])[..., None],
        timesteps=parts["timestep"],
        masks=parts["mask"].float(),
        device="cpu",
    )
    learner.create_impl((parts["observation"].shape[-1],), actions)
    modules = learner.impl.modules
    places = dict(modules.transformer.named_parameters()).get("_position_encoding._block_position_embedding._parameter")
    if places is not None:  # it has three times as many as are looked at
        places.data = places.data[:, : parts["mask"].shape[1]].clone()
    compare(arrays, answer, named(modules, False), {}, lambda: learner.impl.update(batch, step))


def negative_likelihood(policy: Any, x: torch.Tensor, action: torch.Tensor) -> ImitationLoss:
    """In place of the squared error of a draw."""
    return ImitationLoss(loss=-build_gaussian_distribution(policy(x)).log_prob(action).mean())


def target_of_a_normal_draw(self: Any, batch: TorchMiniBatch) -> torch.Tensor:
    """In place of SAC's target, which squashes the draw of AWAC's policy and has an entropy."""
    with torch.no_grad():
        action = build_gaussian_distribution(self.modules.policy(batch.next_observations)).sample()
        return self._targ_q_func_forwarder.compute_target(batch.next_observations, action, reduction="min")


def decoded(self: Any, x: Any, latent: torch.Tensor, with_squash: bool) -> torch.Tensor:
    """In place of a decoder that leaves tanh out where `with_squash` is true."""
    action = self._fc(self._encoder(x, latent))
    return action.tanh() if with_squash else action


def step_of_alpha(self: Any, mmd_loss: torch.Tensor) -> None:
    """In place of a step that leaves the gradient of -`mmd_loss` in the policy too."""
    (parameter,) = self.modules.log_alpha.parameters()
    (parameter.grad,) = torch.autograd.grad(-mmd_loss, [parameter], retain_graph=True)
    self.modules.alpha_optim.step()


def at_midpoints(start: float, end: float, steps: int, **options: Any) -> torch.Tensor:
    """In place of torch.linspace, which gives IQN's fractions outside of training."""
    return start + (end - start) * (torch.arange(steps, **options) + 0.5) / steps


if __name__ == "__main__":
    speed = Speed()
    tasks = [speed.set_up_fit, speed.fit, speed.set_up_draws, speed.draw, learn, update]
    serve({task.__name__: task for task in tasks})
