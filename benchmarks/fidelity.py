"""The fidelity table: one update here and in d3rlpy 2.8.1 or PFRL 0.4.0, from the same weights, batch and random numbers.

Algorithms that neither has stand beside a slow version in float64 (`fidelity_slow.py`), policies that generate or are
told a goal beside their equations in JAX (`fidelity_jax.py`). The rows are those of `fidelity.yaml`.

    make peer && make benchmark-fidelity        or: python benchmarks/fidelity.py [--only TEXT …]

Our side does an update; its weights before, its batch and the numbers that it drew go to the peer, which does the same update in
its own environment with those numbers in place of its draws. Losses, the gradient of each network as its optimiser gets it, and
the weights of networks and targets afterwards are compared tensor by tensor, in float32: ‖ours - theirs‖ / ‖theirs‖ ≤ 1e-5.
Results go to `benchmarks/results/fidelity.md` and `fidelity.json`, which has every tensor.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from tasks import cartpole_like, hopper_like
from torch import nn
from workers import Worker, keep, kept, page, table, today, told

from d3ray.algos.learning.learner import Learner
from d3ray.algos.nets import Nets
from d3ray.algos.networks.behaviour import LatentEncoder
from d3ray.algos.networks.perceptrons import GaussianPolicy, Linear, SquashedGaussianPolicy
from d3ray.algos.networks.training import Pass
from d3ray.algos.registry import make_algorithm
from d3ray.algos.wants import Stretches, Transitions
from d3ray.data.batch import Batch, Sequences
from d3ray.data.operations.goals import GOAL, SEEN
from d3ray.data.sampling.returns import WINDOW

GAMMA, BOUND, BATCH = 0.99, 1e-5, 32
AHEAD = 4  # steps that AWR's returns look ahead
T = 4  # steps of a stretch
KINDS = {"loss": "losses", "gradient": "gradients", "live": "new weights", "target": "new targets"}
SIDES = {"d3rlpy": "d3rlpy_side.py", "pfrl": "pfrl_side.py", "slow": "fidelity_slow.py", "jax": "fidelity_jax.py"}
SHOWN = {"slow": "slow, float64", "jax": "JAX"}
ACTORS = ("actor_goal", "low_goal", "high_goal", "high_target")  # what policies are asked for, in hindsight
BY_PLACE = ("slow", "jax")  # sides that take what ours drew by its places
Arrays = dict[str, np.ndarray]
Draws = list[tuple[str, np.ndarray]]  # ours, in order: the loss that drew them and what for, and the numbers


# ---- rows


@dataclass(frozen=True)
class Case:
    """One algorithm with one kind of critic, beside one peer.

    Attributes:
        label: First cell of the row.
        peer: "d3rlpy", "pfrl", "slow" or "jax".
        ours: Name and settings of our side.
        theirs: Of the peer's.
        step: Gradient step, from 0, that our side does.
        their_step: The one that the peer does.
        losses: What the peer calls our losses; "a + b" is the sum of two of its.
        factor: Our loss, or our gradient of a network, over the peer's, where the peer has the same up to a factor.
        skip: Beginnings of tensors' names that are not compared; `difference` says why.
        slope: By the name of a parameter p, the ends between which the peer has log σ = low + (high - low) sigmoid(p) where ours is
            log σ itself. Gradients are compared through it, new values are not.
        discrete: Whether actions are.
        unending: Whether no step of the batch is terminated.
        tape: The numbers that the peer draws, in its order, out of those that ours drew: a function below, or {function: argument}.
        cancels: By a tensor's name, of one that is what two terms leave of each other: how many times larger these are. Float32
            rounds them by up to 1.2e-7, so that is how far the sides may be apart, times so many.
        difference: What differs, as an equation or a setting.
        dtype: Of both sides; "float64" beside d3rlpy only.
    """

    label: str
    peer: str
    ours: Mapping[str, Any]
    theirs: Mapping[str, Any]
    step: int = 0
    their_step: int = 0
    losses: Mapping[str, str] = field(default_factory=dict)
    factor: Mapping[str, float] = field(default_factory=dict)
    skip: list[str] = field(default_factory=list)
    slope: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    discrete: bool = False
    unending: bool = False
    tape: str | Mapping[str, int] = "as_drawn"
    cancels: Mapping[str, float] = field(default_factory=dict)
    difference: str = ""
    dtype: str = "float32"


def rows() -> list[Case]:
    """Those of the file."""
    found: list[Case] = []
    for group in told("fidelity.yaml")["groups"]:
        same = group["same"]
        for label, own in group["rows"].items():
            both = {side: {**same.get(side, {}), **own.get(side, {})} for side in ("ours", "theirs")}
            found.append(Case(label, **{**same, **own, **both}))
    return found


def as_drawn(draws: Draws) -> list[np.ndarray]:
    return [numbers for _, numbers in draws]


def none(draws: Draws) -> list[np.ndarray]:
    """The sides of `BY_PLACE` take no tape."""
    return []


def fractions(members: int) -> Callable[[Draws], list[np.ndarray]]:
    """What d3rlpy draws where members of our ensemble share fractions [1, B, N]: each its own [B, N], so each gets ours."""
    return lambda draws: [part for _, one in draws for part in ([one[0]] * members if one.ndim == 3 else [one])]


def of_three_kinds(draws: Draws) -> list[np.ndarray]:
    """d3rlpy's CQL draws its uniform actions after the policy's, as [B · N, A] where ours has [N, B, A]."""
    at = next(k for k, (_, numbers) in enumerate(draws) if numbers.ndim == 3 and numbers.min() > 0 and numbers.max() < 1)
    anywhere = draws[at][1].swapaxes(0, 1).reshape(-1, draws[at][1].shape[-1])
    rest = [numbers for _, numbers in draws[:at] + draws[at + 1 :]]
    return [*rest[: at + 2], anywhere, *rest[at + 2 :]]


def greedy_first(n: int) -> Callable[[Draws], list[np.ndarray]]:
    """d3rlpy's DQN draws fractions to choose the next action by, where ours takes midpoints."""

    def tape(draws: Draws) -> list[np.ndarray]:
        drawn, midpoints = fractions(1)(draws), (np.arange(n, dtype=np.float32) + 0.5) / n
        return [np.broadcast_to(midpoints, drawn[0].shape).copy(), *drawn]

    return tape


def live_first(n: int) -> Callable[[Draws], list[np.ndarray]]:
    """PFRL's IQN draws its own fractions, those that it chooses by, and its target's."""

    def tape(draws: Draws) -> list[np.ndarray]:
        chosen, target, live = greedy_first(n)(draws)
        return [live, chosen, target]

    return tape


def by_state(draws: Draws) -> list[np.ndarray]:
    """d3rlpy's BCQ draws n latents of each state as [B · n, Z] where ours has [n, B, Z]."""
    return [numbers.swapaxes(0, 1).reshape(-1, numbers.shape[-1]) if numbers.ndim == 3 else numbers for _, numbers in draws]


TAPES: dict[str, Any] = {one.__name__: one for one in (as_drawn, none, of_three_kinds, by_state)}
TAPES |= {one.__name__: one for one in (fractions, greedy_first, live_first)}


def tape_of(case: Case, draws: Draws) -> list[np.ndarray]:
    if isinstance(case.tape, str):
        return TAPES[case.tape](draws)
    ((name, argument),) = case.tape.items()
    return TAPES[name](argument)(draws)


def p_of(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """P where log σ = low + (high - low) sigmoid(p) is x."""
    share = (x.astype(np.float64) - low) / (high - low)
    return np.log(share / (1 - share))


def slope_at(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """D log σ / dp there."""
    share = (x.astype(np.float64) - low) / (high - low)
    return (high - low) * share * (1 - share)


# ---- our side


def ours(case: Case, arrays: Path) -> Arrays:
    """One update. Writes what the peer starts from to `arrays` and gives losses, gradients and new weights."""
    algorithm = make_algorithm(dict(case.ours), seed=0, device="cpu", dtype=case.dtype)
    dataset = cartpole_like(500) if case.discrete else hopper_like(500)
    if not algorithm.acts():
        algorithm.set_params(algo=make_algorithm({"name": "DQN" if case.discrete else "BC"}, seed=0).build_with_dataset(dataset))
    algorithm.fit(dataset, n_steps=0)
    learner = algorithm.fit_.learner
    perturb(learner)
    learner.step = case.step
    sizes = dataset.spec.observation.shape[0], None if case.discrete else dataset.spec.action.shape[0]
    wanted = algorithm.wants(algorithm.config_)
    columns = stretches(*sizes) if isinstance(wanted, Stretches) else batch(*sizes)
    if not algorithm.acts():
        columns["following"] = columns["next_action"]
    if isinstance(wanted, Transitions) and wanted.ahead:
        columns |= ahead(sizes[0], columns["terminated"])
    if isinstance(wanted, Transitions) and WINDOW in wanted.extra:
        columns |= window(algorithm.config_.td_steps, sizes[1], columns["terminated"])
    if algorithm.goal_conditioned:
        columns |= goals(sizes[0])
    columns = {name: column.astype(case.dtype) if column.dtype == np.float32 else column for name, column in columns.items()}
    before = weights(learner)
    if case.unending:
        columns["terminated"][:] = 0
    with recording(learner) as (found, draws):
        learner.update(as_sequences(columns) if isinstance(wanted, Stretches) else as_batch(columns))
    tape = {f"draw/{k}": numbers for k, numbers in enumerate(tape_of(case, draws))}
    tape |= {f"drawn/{place}": numbers for place, numbers in draws} if case.peer in BY_PLACE else {}
    theirs = {name: p_of(a, *case.slope[n]) if (n := name.partition("/")[2]) in case.slope else a for name, a in before.items()}
    for name, ends in case.slope.items():
        found[f"gradient/{name}"] = found[f"gradient/{name}"] * slope_at(before[f"live/{name}"], *ends)
    np.savez(arrays, **theirs, **tape, **{f"batch/{name}": column for name, column in columns.items()})
    return {**found, **weights(learner)}


@torch.no_grad()
def perturb(learner: Learner) -> None:
    """Noise on all weights, so that targets differ from networks and nothing is zero."""
    for networks, scale in ((learner.live, 0.02), (learner.target, 0.05)):
        for network, tensors in networks.items():
            for name in learner.live[network]:  # a target has buffers too, as the places of atoms
                tensor = tensors[name]
                generator = torch.Generator().manual_seed(zlib.crc32(f"{network}/{name}/{scale}".encode()))
                tensor.add_(scale * torch.randn(tensor.shape, generator=generator))


def batch(observation: int, action: int | None) -> Arrays:
    """A batch of noise; a fifth of its transitions terminate."""
    rng = np.random.default_rng(7)
    return {
        "observation": rng.standard_normal((BATCH, observation), np.float32),
        "action": rng.integers(0, 2, BATCH) if action is None else rng.uniform(-1, 1, (BATCH, action)).astype(np.float32),
        "reward": 0.5 + rng.standard_normal(BATCH, np.float32),  # errors of one sign: a mean that cancels has few digits
        "next_observation": rng.standard_normal((BATCH, observation), np.float32),
        "terminated": (rng.random(BATCH) < 0.2).astype(np.float32),
        "next_action": rng.integers(0, 2, BATCH) if action is None else rng.uniform(-1, 1, (BATCH, action)).astype(np.float32),
        "return_to_go": rng.standard_normal(BATCH, np.float32),
    }


def goals(observation: int) -> Arrays:
    """Goals of noise: of values, of the actor, and of two policies one above the other."""
    rng = np.random.default_rng(9)
    return {name: rng.standard_normal((BATCH, observation), np.float32) for name in (GOAL, *ACTORS)}


def window(steps: int, action: int | None, terminated: np.ndarray) -> Arrays:
    """The actions of so many steps, of which a cut episode has only the first; a terminated one has them all."""
    rng = np.random.default_rng(10)
    left = np.where(terminated > 0, steps, rng.integers(1, steps + 1, BATCH))
    return {
        WINDOW: rng.uniform(-1, 1, (BATCH, steps, action)).astype(np.float32),
        "window_mask": (np.arange(steps) < left[:, None]).astype(np.float32),
    }


def stretches(observation: int, action: int | None) -> Arrays:
    """Stretches of noise; with continuous actions padded in front."""
    rng, lengths = np.random.default_rng(7), T - np.arange(BATCH) % T
    mask = (np.arange(T) >= T - lengths[:, None]) | (action is None)
    found = {
        "observation": rng.standard_normal((BATCH, T, observation), np.float32),
        "action": rng.integers(0, 2, (BATCH, T)) if action is None else rng.uniform(-1, 1, (BATCH, T, action)).astype(np.float32),
        "reward": rng.standard_normal((BATCH, T), np.float32),
        "return_to_go": rng.standard_normal((BATCH, T), np.float32),
        "timestep": rng.integers(0, 90, (BATCH, 1)) + np.arange(T),
        "mask": mask,
    }
    return {name: part * mask.reshape(BATCH, T, *[1] * (part.ndim - 2)) for name, part in found.items()}


def ahead(observation: int, terminated: np.ndarray) -> Arrays:
    """What the steps after each transition hold: up to `AHEAD` of them, which end by a terminal, a cut, or not at all."""
    rng = np.random.default_rng(8)
    left = np.where(terminated > 0, 0, rng.integers(0, AHEAD + 1, BATCH))
    steps = np.arange(AHEAD)
    mask = (steps < left[:, None]).astype(np.float32)
    ends = (steps == left[:, None] - 1) & (rng.random((BATCH, 1)) < 0.5)
    return {
        "ahead_reward": mask * rng.standard_normal((BATCH, AHEAD), np.float32),
        "ahead_discount": (GAMMA * ~ends).astype(np.float32),
        "ahead_mask": mask,
        "ahead_observation": rng.standard_normal((BATCH, AHEAD, observation), np.float32),
    }


def as_sequences(columns: Arrays) -> Sequences:
    tensors = {name: torch.from_numpy(column) for name, column in columns.items()}
    return Sequences(**tensors, discount=torch.ones(BATCH, T), index=torch.arange(BATCH))


def as_batch(columns: Arrays) -> Batch:
    tensors = {name: torch.from_numpy(column) for name, column in columns.items()}
    discount = GAMMA * (1 - tensors.pop("terminated"))
    extra = {"return_to_go": tensors.pop("return_to_go")}
    if "following" in tensors:
        extra["following"] = tensors.pop("following")
    extra |= {name.replace("_", "/", 1): tensors.pop(name) for name in list(tensors) if name.startswith("ahead_")}
    extra |= {name: tensors.pop(name) for name in (WINDOW, "window_mask") if name in tensors}
    if GOAL in tensors:
        goal = tensors.pop(GOAL)
        extra |= {name: tensors.pop(name) for name in ACTORS}
        extra["high_state"] = {SEEN: extra["high_target"]}
        seen: Any = {name: {SEEN: tensors.pop(name), GOAL: goal} for name in ("observation", "next_observation")}
        tensors |= seen
    return Batch(**tensors, discount=discount, index=torch.arange(BATCH), extra=extra)


@contextmanager
def recording(learner: Learner) -> Iterator[tuple[Arrays, Draws]]:
    """Keeps, within it, losses and gradients by name, and every number that a loss draws, by `LOSS/NAME`."""
    found: Arrays = {}
    draws: Draws = []
    gradients, precompute = learner.gradients, learner.precompute

    def watched(loss: Any, names: tuple[str, ...], *rest: Any, **more: Any) -> Any:
        place[0] = loss.__name__
        answer = gradients(loss, names, *rest, **more)
        found[f"loss/{loss.__name__}"] = answer[1].detach().numpy()
        left = iter(answer[0])
        for name in names:
            taken = {parameter: next(left) for parameter in learner.live[name]}
            found.update({f"gradient/{k}": v for k, v in by_layer(name, learner.modules[name], taken).items()})
        return answer

    def computed(part: Any, batch: Batch) -> Batch:
        place[0] = part.__name__
        return precompute(part, batch)

    place = [""]

    def drawn(draw: Any) -> Any:
        def record(self: Any, *arguments: Any) -> torch.Tensor:
            numbers = draw(self, *arguments)
            draws.append((f"{place[0]}/{arguments[0]}", numbers.numpy()))
            return numbers

        return record

    with (
        mock.patch.object(learner, "gradients", watched),
        mock.patch.object(learner, "precompute", computed),
        mock.patch.object(Nets, "noise", drawn(Nets.noise)),
        mock.patch.object(Nets, "uniform", drawn(Nets.uniform)),
        mock.patch.object(Pass, "uniform", drawn(Pass.uniform)),
    ):
        yield found, draws


def weights(learner: Learner) -> Arrays:
    """Copies of all weights by the names that `fidelity_side.py` gives them."""
    found: Arrays = {}
    for kind, networks in (("live", learner.live), ("target", learner.target)):
        for name, tensors in networks.items():
            trained = {parameter: tensors[parameter] for parameter in learner.live[name]}  # a target has buffers too
            found |= {f"{kind}/{k}": v.copy() for k, v in by_layer(name, learner.modules[name], trained).items()}
    return found


def by_layer(network: str, module: nn.Module, tensors: Mapping[str, torch.Tensor]) -> Arrays:
    """Tensors of a network, parameters or gradients, one array for each member and layer."""
    found: Arrays = {}
    encoder, seen = 0, set[str]()
    normal = isinstance(module, (GaussianPolicy, SquashedGaussianPolicy, LatentEncoder))
    for path, layer in module.named_modules():
        if not isinstance(layer, Linear):
            continue
        name = path
        if path.removeprefix("body.").startswith("encoder"):
            name, encoder = f"encoder.{encoder}", encoder + 1
        seen |= {f"{path}.weight", f"{path}.bias"}
        weight, bias = (tensors[f"{path}.{kind}"].detach().numpy() for kind in ("weight", "bias"))
        for k in range(layer.members or 1):
            w, b = (weight.T, bias) if layer.members is None else (weight[k].T, bias[k, 0])
            parts = {name: slice(None)}
            if normal and path == "head":  # peers have a layer for the mean and one for log σ
                half = len(b) if getattr(module, "log_std", None) is not None else len(b) // 2
                parts = {"mean": slice(half), "log_std": slice(half, None)} if half < len(b) else {"mean": slice(None)}
            if path.endswith("key_value"):
                parts = {
                    path.removesuffix("_value"): slice(len(b) // 2),
                    path.replace("key_value", "value"): slice(len(b) // 2, None),
                }
            for part, rows in parts.items():
                found[f"{network}/{k}/{part}/weight"], found[f"{network}/{k}/{part}/bias"] = w[rows], b[rows]
    return found | {f"{network}/0/{name}": tensor.detach().numpy() for name, tensor in tensors.items() if name not in seen}


# ---- the comparison


def compared(case: Case, found: Arrays, theirs: Mapping[str, np.ndarray]) -> dict[str, float]:
    """‖ours - theirs‖ / ‖theirs‖ of every tensor. Raises RuntimeError where only one side has it."""
    skip = (*case.skip, *(f"{kind}/{name}" for name in case.slope for kind in ("live", "target")))
    distances: dict[str, float] = {}
    for name, array in found.items():
        if name.startswith(skip):
            continue
        kind, _, rest = name.partition("/")
        their = [f"loss/{part}" for part in case.losses[rest].split(" + ")] if kind == "loss" else [name]
        if missing := set(their) - set(theirs):
            raise RuntimeError(f"{case.label}: {case.peer} gave no {', '.join(missing)}")
        factor = case.factor.get(rest.partition("/")[0], 1.0) if kind in ("loss", "gradient") else 1.0
        expected = factor * sum(np.asarray(theirs[part], np.float64) for part in their)
        distance, size = np.linalg.norm(array.reshape(expected.shape) - expected), np.linalg.norm(expected)
        distances[name] = float(distance / size) if size else float(distance)
    return distances


def row(case: Case, distances: Mapping[str, float]) -> list[str]:
    worst = {kind: max((d for n, d in distances.items() if n.startswith(f"{kind}/")), default=None) for kind in KINDS}
    cells = ["" if value is None else f"{value:.1e}" for value in worst.values()]
    return [case.label, SHOWN.get(case.peer, case.peer), *cells, "met" if met(case, distances) else "NOT met", case.difference]


def met(case: Case, distances: Mapping[str, float]) -> bool:
    """Whether every tensor is within its bound."""
    rounding = float(np.finfo(np.float32).eps)
    return all(distance <= max(BOUND, rounding * case.cancels.get(name, 0)) for name, distance in distances.items())


def markdown(report: dict[str, Any], lines: list[list[str]]) -> str:
    header = ["algorithm", "beside", *KINDS.values(), f"≤ {BOUND:.0e}", "what differs all the same"]
    versions = "; ".join(f"{side}: {', '.join(f'{n} {v}' for n, v in used.items())}" for side, used in report["versions"].items())
    return page("fidelity", table=table(header, lines), date=report["date"], versions=versions)


def beside(case: Case, worker: Worker, folder: Path) -> dict[str, float]:
    """An update here and there."""
    given, answer = folder / "given.npz", folder / "answer.npz"
    found = ours(case, given)
    asked = {"algorithm": dict(case.theirs), "actions": 2 if case.discrete else 3, "step": case.their_step}
    asked |= {"dtype": case.dtype} if case.peer == "d3rlpy" else {}
    worker("update", arrays=str(given), answer=str(answer), **asked)
    with np.load(answer) as theirs:
        return compared(case, found, theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description="One update beside d3rlpy 2.8.1, PFRL 0.4.0, JAX and slow versions.")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="rows whose label has it; the others stay as they are")
    only, cases = parser.parse_args().only, rows()
    torch.set_num_threads(1)
    report: dict[str, Any] = {"date": today(), "bound": BOUND, "versions": {}, "rows": []}
    found = {(one["peer"], one["label"]): one for one in (kept("fidelity", {"rows": []})["rows"] if only else [])}
    with tempfile.TemporaryDirectory(prefix="d3ray-fidelity-") as folder:
        log = Path(folder) / "workers.log"
        with Worker("ours.py", 1, log) as worker:
            report["versions"]["d3ray"] = worker("versions")
        for peer, script in SIDES.items():
            with Worker(script, 1, log) as worker:
                report["versions"][peer] = worker("versions")
                for case in cases:
                    if case.peer == peer and (not only or any(part in case.label for part in only)):
                        try:
                            tensors = beside(case, worker, Path(folder))
                        except RuntimeError as error:
                            sys.exit(f"{case.label}: {error}\n{log.read_text()[-3_000:]}")
                        one = {"algorithm": case.ours["name"], "label": case.label, "peer": peer, "met": met(case, tensors)}
                        found[peer, case.label] = {**one, "tensors": tensors}
    there = [(case, one) for peer in SIDES for case in cases if case.peer == peer and (one := found.get((peer, case.label)))]
    report["rows"] = [{**one, "difference": case.difference} for case, one in there]
    text = markdown(report, [row(case, one["tensors"]) for case, one in there])
    print(text)
    keep("fidelity", report, text)
    if not all(r["met"] for r in report["rows"]):
        sys.exit(1)


if __name__ == "__main__":
    main()
