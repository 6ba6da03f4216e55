"""Checks of legal actions: of data with an `action_mask`, nothing that is illegal is chosen, or looked at."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...data.masks import Masked
from ..base import Algorithm
from ..learning.learner import Learner
from .errors import ContractError, Make, check
from .tiny import answers, data_for, tiny_dataset
from .updates import seen_losses

BUMP = 100.0  # what an illegal action is worth more of a sudden


@check
def check_chooses_legal_actions(make: Make) -> None:
    """Of data with an `action_mask`, greedy and drawn actions are legal, whatever the mask; with one legal action, that one."""
    if not _discrete(make):
        return
    dataset = data_for(make)
    algorithm = make().fit(dataset, 5, 5)
    n, observation = dataset.spec.n_actions, dataset.columns["observation"][:64]
    one = np.eye(n, dtype=bool)[np.arange(len(observation)) % n]
    for mask in (one, ~one):
        for said, act in answers(algorithm).items():
            action = act(Masked(observation, mask))
            if (wrong := ~np.take_along_axis(mask, action[:, None], 1)[:, 0]).any():
                k = int(wrong.argmax())
                raise ContractError(
                    f"{algorithm.name}.{said} gives action {action[k]} where {np.flatnonzero(mask[k]).tolist()} are legal. Choose "
                    "by what networks say of an observation, or by legal_only(…, observation) of what is worked out from features."
                )


@check
def check_illegal_actions_are_unseen(make: Make) -> None:
    """No loss, and no gradient, depends on what networks say of an action that is illegal, here or at the next observation."""
    if not _discrete(make):
        return
    dataset = tiny_dataset(discrete=True, actions=2, unheard_of=1)
    algorithm = make(dtype="float64").fit(dataset, 5, 5)
    learner, batch = algorithm.fit_.learner, algorithm.fit_.sampler(dataset).sample(0)
    before = seen_losses(learner, batch)
    with raised(learner, dataset.spec.n_actions):
        after = seen_losses(learner, batch)
    for name, seen in after.items():
        if seen.differs(before[name], 1e-12):
            raise ContractError(
                f"{algorithm.name}.{name} depends on the value or the logit of an action that is illegal. Look for what is worked "
                "out from features and is not passed through legal_only(…, observation), or for a sum over all actions."
            )


@check
def check_all_legal_is_no_mask(make: Make) -> None:
    """Data by whose mask all actions are legal train what the same data without a mask do, to the last bit."""
    if not _discrete(make):
        return
    states = [_state(make().fit(tiny_dataset(discrete=True, masked=masked), 4, 4)) for masked in ("all", None)]
    for name, tensor in states[0].items():
        if not torch.equal(tensor, states[1][name]):
            raise ContractError(
                f"{make().name}: {name!r} is trained to something else by a mask with which all actions are legal. Look for a "
                "number of actions that is counted from the mask, or a sum in another order."
            )


@contextmanager
def raised(learner: Learner, n_actions: int) -> Generator[None]:
    """Inside, what layers called `head` say of the last of n actions is more, in networks and their targets."""

    def more(_: nn.Module, inputs: Any, said: Any) -> Any:
        if not isinstance(said, Tensor) or said.shape[-1] % n_actions:
            return said
        last = torch.arange(said.shape[-1], device=said.device) >= said.shape[-1] - said.shape[-1] // n_actions
        return said + BUMP * last

    networks = (*learner.modules.values(), *learner._targets.values())  # pyright: ignore[reportPrivateUsage]
    heads = {part for network in networks for name, part in network.named_modules() if name.endswith("head")}
    hooks = [head.register_forward_hook(more) for head in heads]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _state(algorithm: Algorithm) -> dict[str, Tensor]:
    return algorithm.state()[0]


def _discrete(make: Make) -> bool:
    return make().action_kinds() == ("discrete",)
