"""Checks of single updates: what losses look at, what they train, and that they are programs of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...data.batch import Batch
from ...data.histories import Histories, steps_there
from ...data.masks import bare, mask_of, masked
from ...data.sampling import RETURNS
from ...data.tracing import traced
from ..learning.fit import Fit
from ..learning.programs import Programs
from ..nets import axes_said
from ..ports import memories
from ..recurrence import remembers
from ..wants import Stretches, Transitions
from .errors import ContractError, Make, check, largest_difference, live, wanted
from .tiny import counts_costs, data_for, tiny_dataset
from .updates import (
    OnMeta,
    SeenLoss,
    first_steps,
    gradients_elsewhere,
    moved_by_verbs,
    on_meta,
    seen_losses,
    started,
    values_shape,
    where,
)

_ROUNDING = 1e-12  # of weights that sum to 1, whatever they are
ROWS = 64  # transitions of a batch that is looked at: some of them end an episode


def looked_at(make: Make, **run: Any) -> tuple[Fit, Batch, dict[str, SeenLoss]]:
    """A fit in float64, a batch with every kind of end, and its losses."""
    fit = started(make, dtype="float64", batch_size=ROWS, **run)
    batch = fit.sampler(data_for(make)).sample(0)
    assert 0 < int((batch.discount == 0).sum()) < batch.discount.numel(), "the tiny data have both steps that terminate and others"
    return fit, batch, seen_losses(fit.learner, batch)


def changed(fit: Fit, before: Mapping[str, SeenLoss], batch: Batch, by: float = 0.0) -> list[str]:
    return [name for name, seen in seen_losses(fit.learner, batch).items() if seen.differs(before[name], by)]


def other_following(batch: Batch, rows: Tensor) -> Batch:
    """The batch with the next observation and next action of others in some rows, [B] bool."""

    def mixed(part: Any) -> Any:
        if part is None:
            return None
        if isinstance(bare(part), Histories):
            return masked(_others_at_the_end(bare(part), rows), mask_of(part))
        return pytree.tree_map(lambda t: torch.where(rows.reshape(-1, *[1] * (t.ndim - 1)), t.roll(1, 0), t), part)

    return replace(batch, next_observation=mixed(batch.next_observation), next_action=mixed(batch.next_action))


def _others_at_the_end(histories: Histories, rows: Tensor) -> Histories:
    """Stretches whose last step leads elsewhere where that is one of the rows, [N] bool; others' steps lead to the next ones."""
    at = rows.unflatten(0, (len(histories.mask), -1))[:, -1]

    def other(part: Tensor) -> Tensor:
        last = part[:, -1]
        changed = torch.where(at.reshape(-1, *[1] * (last.ndim - 1)), last.roll(1, 0), last)
        return torch.cat((part[:, :-1], changed[:, None]), 1)

    return replace(histories, observation=pytree.tree_map(other, histories.observation))


@check
def check_losses_repeat(make: Make) -> None:
    """A loss is a function of networks, batch and address: asked twice at one step it answers the same, to the last bit."""
    fit, batch, before = looked_at(make)
    if others := changed(fit, before, batch):
        raise ContractError(
            f"{fit.algorithm.name}.{others[0]} gives something else for the same networks and batch. "
            "Look for something that it remembers, or draws with other numbers than nets.noise and nets.uniform."
        )


@check
def check_moves_only_what_is_named(make: Make) -> None:
    """`minimise` moves the networks that it names and nothing else, other verbs what is theirs, and nothing moves in between."""
    fit = started(make)
    for verb, may, moved in moved_by_verbs(fit.learner, fit.sampler(data_for(make)).sample(0)):
        if stray := sorted(name for name in moved if not name.startswith((*may, "hyper/"))):
            what = f"{verb} also moves" if verb else "something besides the verbs moves"
            raise ContractError(
                f"{fit.algorithm.name}: {what} {stray[0]!r}. Look for a module that two networks share, or an assignment in place."
            )


@check
def check_targets_get_no_gradient(make: Make) -> None:
    """Check that no gradient flows through a loss's target, computed from the next observation, to any network."""
    fit, batch, before = looked_at(make)
    for name in changed(fit, before, replace(batch, discount=batch.discount / 2)):
        for place, size in gradients_elsewhere(fit.learner, before[name]).items():
            through = "through what it expects of the next observation" if place == "next observation" else f"at the {place}"
            raise ContractError(
                f"{fit.algorithm.name}.{name} has a gradient {through} (up to {size:.1e}). "
                "Compute the goal under torch.no_grad(), with nets.target."
            )


def _following(fit: Fit) -> bool:
    return getattr(fit.sources.wants, "following", True)


@check
def check_bootstraps_by_the_batchs_discount(make: Make) -> None:
    """Losses value what follows by `batch.discount`, which is γⁿ (1 - terminated), and do not discount by γ themselves."""
    fit, batch, before = looked_at(make)
    name = fit.algorithm.name
    if not _following(fit):
        return
    if not changed(fit, before, replace(batch, discount=batch.discount / 2)):
        raise ContractError(
            f"{name}: no loss depends on batch.discount. A goal is batch.reward + batch.discount * value(next_observation); "
            "an algorithm that looks at no next observation wants transitions(config, following=False)."
        )
    if not changed(fit, before, other_following(batch, batch.discount > 0)):
        raise ContractError(
            f"{name}: no loss depends on batch.next_observation; want transitions(config, following=False), or look at it."
        )
    if "gamma" in fit.learner.values:
        fit.learner.set_hyper("gamma", [0.5])
    if others := changed(fit, before, batch):
        raise ContractError(
            f"{name}.{others[0]} discounts by h.gamma. Use batch.discount: with td_steps = n it is γⁿ, and 0 where an episode "
            "terminated."
        )


@check
def check_terminated_steps_look_no_further(make: Make) -> None:
    """Where an episode terminated nothing depends on the next observation; with `following=False` nothing does anywhere."""
    fit, batch, before = looked_at(make)
    if isinstance(fit.sources.wants, Stretches):
        return  # they have no next observation but the next step's, see the next check
    rows = (batch.discount == 0) | torch.tensor(not _following(fit))
    if others := changed(fit, before, other_following(batch, rows), by=_ROUNDING):
        ends = "of steps that terminated" if _following(fit) else "though it wants nothing that follows"
        raise ContractError(
            f"{fit.algorithm.name}.{others[0]} depends on the next observation {ends}. "
            "Multiply what is expected of it by batch.discount, which is 0 there."
        )


@check
def check_padding_is_unseen(make: Make) -> None:
    """Padding changes no loss of a stretch, and no action depends on what is padding, or on the action that is asked for."""
    if not isinstance(wanted(make()), Stretches):
        _check_padded_histories(make)
        return
    fit, batch, before = looked_at(make)
    name, sequences = fit.algorithm.name, cast("Any", batch)

    def spoilt(part: Tensor, where: Tensor) -> Tensor:
        where = where.reshape(*where.shape, *[1] * (part.ndim - where.ndim))
        return torch.where(where, torch.full_like(part, 2), part)  # the last of the tiny data's discrete actions

    def others(where: Tensor, *parts: str) -> Any:
        return replace(sequences, **{n: pytree.tree_map(lambda t: spoilt(t, where), getattr(sequences, n)) for n in parts})

    hollow = others(~sequences.mask, "observation", "action", "reward", "return_to_go", "timestep")
    for loss, seen in seen_losses(fit.learner, hollow).items():
        if not (gap := largest_difference({"": before[loss].value}, {"": seen.value})[1]) <= 1e-12:
            raise ContractError(f"{name}.{loss} depends on padding (by {gap:.1e}): multiply what it sums by batch.mask.")
    if memories(fit.ports):
        return  # it acts step by step, on no padding
    last = torch.zeros_like(sequences.mask)
    last[:, -1] = True
    action = fit.algorithm.act(fit.nets(), sequences.seen, {}, {})[0]
    for changed_batch, what in ((hollow, "padding"), (others(last, "action"), "the action that is asked for")):
        if not torch.allclose(fit.algorithm.act(fit.nets(), changed_batch.seen, {}, {})[0], action, rtol=0, atol=1e-9):
            raise ContractError(f"{name}.act depends on {what}: mask it.")


def _check_padded_histories(make: Make) -> None:
    """Check the steps that came before others, for recurrent encoders."""
    fit, batch, before = looked_at(make)
    if (there := steps_there(batch.observation)) is None:
        return

    def spoilt(observation: Any) -> Any:
        histories, mask = bare(observation), bare(observation).mask

        def hollow(part: Tensor) -> Tensor:
            return torch.where(mask.reshape(*mask.shape, *[1] * (part.ndim - 2)), part, torch.full_like(part, 2))

        other = replace(histories, observation=pytree.tree_map(hollow, histories.observation))
        return masked(other, mask_of(observation))

    found = replace(
        batch,
        reward=torch.where(there, batch.reward, torch.full_like(batch.reward, 2)),
        observation=spoilt(batch.observation),
        next_observation=spoilt(batch.next_observation),
    )
    if others := changed(fit, before, found, by=_ROUNDING):
        raise ContractError(
            f"{fit.algorithm.name}.{others[0]} depends on padding, which the batch's weights leave out of a loss of each sample."
        )


@check
def check_truncation_is_unseen(make: Make) -> None:
    """An episode that was cut teaches what it would have taught uncut: the same transitions, each cut off, train the same.

    Returns are of one step here: longer ones end where an episode was cut, and rightly are others then.
    """
    algorithm = make()
    wants = wanted(algorithm)
    if not isinstance(wants, Transitions) or wants.next_action or wants.ahead or "return_to_go" in wants.extra:
        return  # these end where an episode was cut
    if remembers(algorithm.check_settings()):
        return  # and so does what came before
    single = {"td_steps": 1} if "td_steps" in algorithm.Config.model_fields else {}
    states: list[dict[str, Tensor]] = []
    for cut in (False, True):
        dataset = tiny_dataset(discrete=algorithm.actions == "discrete", cut=cut, costs=counts_costs(algorithm))
        states.append(live(make(dtype="float64", batch_size=ROWS, **single).fit(dataset, 3, 3).state()[0]))
    name, gap = largest_difference(*states)
    if gap:
        raise ContractError(
            f"{algorithm.name}: the same transitions train {name!r} otherwise (by {gap:.1e}) where episodes were truncated. "
            "Truncated steps bootstrap as others do: batch.discount says so already."
        )


@check
def check_update_reads_no_value(make: Make, stacks: Sequence[tuple[int, ...]] = ((3,), (3, 4))) -> None:
    """Whole gradient steps run on meta tensors, plain and stacked: nothing waits for a device, and shapes are fixed.

    No value is read, and no tensor of the host meets one of the device. Batches are drawn there too, where a program can draw them.
    An algorithm that says why its updates read values is left out.
    """
    if make().reads_values is not None:
        return
    dataset = data_for(make)
    for seeds in stacks:
        algorithm = make(device="meta")
        algorithm.fit_ = fit = Fit.start(algorithm, dataset, seeds)
        programs = Programs(fit.learner, compiled=False, graphs=None)
        source, due = fit.sampler(dataset), tuple(map(fit.algorithm.schedule, sorted(set(first_steps(fit.learner).values()))))
        # A table of returns is made from the value of γ, which a meta tensor has not.
        draws = RETURNS not in getattr(fit.sources.wants, "extra", ()) and programs.draws_from(source)
        drawn = on_meta(Fit.start(make(), dataset, seeds).sampler(dataset).sample(0))
        try:
            for first in (True, False):
                with traced("replayed"), OnMeta(first=first):
                    for kinds in due:
                        programs.fed(kinds, drawn)
                    if draws:
                        programs.steps(due, source)
        except Exception as error:
            at = where(error, algorithm)
            raise ContractError(
                f"{algorithm.name}: an update reads a value or makes a shape from one ({error}){at and f', at {at}'}. "
                "Look for .item(), if on a tensor, a boolean mask, or a tensor made on the CPU."
            ) from error


@check
def check_losses_are_per_sample(make: Make) -> None:
    """A loss says its axes, `@loss("sample")`, and gives as many values as the batch has samples along them."""
    try:
        fit, batch, before = looked_at(make)
    except TypeError as error:
        raise ContractError(str(error)) from None
    for name, seen in before.items():
        shape, axes = values_shape(fit.learner, seen), axes_said(seen.loss)
        if "sample" in (named := axes.split()) and shape[named.index("sample")] != len(batch.index):
            raise ContractError(
                f"{fit.algorithm.name}.{name} says that it gives {axes!r}, and gives values of the shape {shape} for a "
                f"batch of {len(batch.index)}."
            )
