"""Checks of short runs: they learn, repeat, resume, and do the same in a stack."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...data.dataset import Dataset
from ...data.storage.claims import scratch_names
from ..saving.checkpoint import read_checkpoint
from ..stack import Stack
from .alternatives import other_floats
from .errors import ContractError, Make, check, largest_difference
from .tiny import answers, data_for
from .updates import first_steps, seen_losses, started


@check
def check_learns_something(make: Make) -> None:
    """Every network is trained within 20 updates of every kind, stays finite, and losses are reported by name."""
    fit = started(make)
    source, learner, before = fit.sampler(data_for(make)), fit.learner, fit.learner.state()
    for step in sorted({*range(20), *first_steps(learner).values()}):
        learner.step = step
        learner.update(source.sample(step))
    after = learner.state()
    for name in learner.networks:
        mine = [n for n in before if n.startswith(f"live/{name}/")]
        if all(torch.equal(before[n], after[n]) for n in mine):
            raise ContractError(f"{fit.algorithm.name}: the network {name!r} never moves; does a kind in the schedule minimise it?")
    if bad := [name for name, tensor in after.items() if not tensor.isfinite().all()]:
        raise ContractError(f"{fit.algorithm.name}: {bad[0]!r} is not finite after 20 updates.")
    metrics = learner.read_metrics()[0]
    if not [name for name in metrics if name.endswith("_loss")]:
        raise ContractError(f"{fit.algorithm.name} reports no loss, which is a method that ends in _loss: {sorted(metrics)}.")


@check
def check_row_equals_single_run(
    make: Make, n_steps: int = 30, tolerance: float = 2e-14, seeds: tuple[int, ...] = (3, 4, 5)
) -> None:
    """Row k of a stack learns what seed k learns alone, also where its coefficients are others: float64, the state within 2e-14."""
    dataset, rows = data_for(make), [*({} for _ in seeds[1:]), other_floats(make)]
    stack = Stack(make(dtype="float64"), seeds, rows).fit(dataset, n_steps)
    for k, (seed, row) in enumerate(zip(seeds, rows, strict=True)):
        alone = make(dtype="float64", seed=seed, **row).fit(dataset, n_steps)
        name, gap = largest_difference(stack.seed(k).state()[0], alone.state()[0])
        if gap <= tolerance:  # so that NaN fails too
            continue
        cause = "Look for a draw outside nets.noise, a sum over the stack, or a shape that counts seeds."
        if coefficient := _read_elsewhere(make, dataset, row):
            cause = f"They differ in {coefficient!r}: read it as h.{coefficient}, not from the config."
        raise ContractError(f"{alone.name}: row {k} of the stack differs from seed {seed} alone by {gap:.1e} in {name!r}. {cause}")


def _read_elsewhere(make: Make, dataset: Dataset, row: dict[str, float]) -> str:
    """The coefficient whose other value a row does not follow; "" where each alone is followed."""
    for name, value in row.items():
        stack = Stack(make(dtype="float64"), (3, 4), [{}, {name: value}]).fit(dataset, 8)
        alone = make(dtype="float64", seed=4, **{name: value}).fit(dataset, 8)
        plain = make(dtype="float64", seed=3).fit(dataset, 8)
        followed = largest_difference(stack.seed(1).state()[0], alone.state()[0])[1] <= 2e-14
        if not followed and largest_difference(stack.seed(0).state()[0], plain.state()[0])[1] <= 2e-14:
            return name
    return ""


@check
def check_one_update_in_float32(make: Make) -> None:
    """From equal state one update's losses and gradients of a row are those of its single run: float32, 1e-5 of the norm."""
    dataset, seeds = data_for(make), (3, 4)
    stack = Stack(make(), seeds).fit(dataset, n_steps=0)
    stacked = seen_losses(stack.fit_.learner, stack.fit_.sampler(dataset).sample(0))
    for k, seed in enumerate(seeds):
        alone = make(seed=seed).fit(dataset, n_steps=0)
        for name, seen in seen_losses(alone.fit_.learner, alone.fit_.sampler(dataset).sample(0)).items():
            parts = {"value": (stacked[name].value, seen.value)} | {
                f"gradient {i}": pair for i, pair in enumerate(zip(stacked[name].gradients, seen.gradients, strict=True))
            }
            for part, (rows, whole) in parts.items():
                gap = float((rows[k] - whole).norm() / whole.norm().clamp(min=1e-12))
                if not gap <= 1e-5:
                    raise ContractError(
                        f"{alone.name}: in float32 row {k}'s {name}'s {part} is not its single run's, by {gap:.1e} of the norm."
                    )


@check
def check_resumes_bit_for_bit(make: Make, n_steps: int = 9) -> None:
    """Saved after 9 updates, loaded and trained 9 more is the same, to the last bit, as 18 in one go."""
    dataset, n = data_for(make), n_steps
    with tempfile.TemporaryDirectory(prefix=scratch_names("tiny")) as folder:
        make(seed=1).fit(dataset, n, 6).save(Path(folder) / "saved")
        tensors, meta, _ = read_checkpoint(Path(folder) / "saved")
    resumed = make(seed=1).load_state(tensors, meta).fit(dataset, n, 6)
    name, gap = largest_difference(resumed.state()[0], make(seed=1).fit(dataset, 2 * n, 6).state()[0])
    if gap != 0:
        raise ContractError(
            f"{resumed.name}: a resumed run differs by {gap:.1e} in {name!r}. Look for state outside learner.state()."
        )


@check
def check_randomness_has_addresses(make: Make) -> None:
    """Training and acting neither use nor move the generators of torch, NumPy and Python: two runs of a seed are equal."""
    dataset, states = data_for(make), list[dict[str, Tensor]]()
    with _generators_kept():
        for seed in (1, 2):
            torch.default_generator.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            before = _generators()
            algorithm = make(seed=3).fit(dataset, 5, 5)
            for act in answers(algorithm).values():
                act(dataset.columns["observation"][:4])
            states.append(algorithm.state()[0])
            for name, now in _generators().items():
                if now != before[name]:
                    raise ContractError(f"{algorithm.name} draws from the generator of {name}: use nets.noise or nets.uniform.")
    name, gap = largest_difference(*states)
    if gap != 0:
        raise ContractError(
            f"{algorithm.name}: two runs of one seed differ by {gap:.1e} in {name!r}. Draw with nets.noise or nets.uniform."
        )


def _generators() -> dict[str, Any]:
    kind, words, *rest = np.random.get_state()
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "NumPy": (kind, np.asarray(words).tobytes(), *rest),
        "Python": random.getstate(),
    }


@contextmanager
def _generators_kept() -> Generator[None]:
    torchs, numpys, pythons = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(torchs)
        np.random.set_state(numpys)
        random.setstate(pythons)
