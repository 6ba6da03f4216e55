"""The fidelity table: one update here and in d3rlpy 2.8.1 or PFRL 0.4.0, from the same weights, batch and random numbers.

Algorithms that neither has stand beside a slow version in float64 (`fidelity_slow.py`).

    make peer && make benchmark-fidelity        or: python benchmarks/fidelity.py [--only TEXT …]

Our side does an update; its weights before, its batch and the numbers that it drew go to the peer, which does the same update in
its own environment with those numbers in place of its draws. Losses, the gradient of each network as its optimiser gets it, and
the weights of networks and targets afterwards are compared tensor by tensor, in float32: ‖ours - theirs‖ / ‖theirs‖ ≤ 1e-5.
Results go to `benchmarks/results/fidelity.md` and `fidelity.json`, which has every tensor.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from arrays import cartpole_like, hopper_like
from fidelity_behaviour import BEHAVIOUR_CASES
from fidelity_cases import BATCH, CASES, Case, Draws
from fidelity_pfrl_cases import PFRL_CASES
from fidelity_sequences import SEQUENCE_CASES, as_sequences, stretches
from fidelity_slow_cases import SLOW_CASES, ahead
from torch import nn
from workers import HERE, Worker, table

from d3ray.algos.learning.learner import Learner
from d3ray.algos.nets import Nets
from d3ray.algos.networks.behaviour import LatentEncoder
from d3ray.algos.networks.heads import GaussianPolicy, SquashedGaussianPolicy
from d3ray.algos.networks.layers import Linear
from d3ray.algos.networks.training import Pass
from d3ray.algos.registry import make_algorithm
from d3ray.algos.wants import Stretches, Transitions
from d3ray.data.batch import Batch

RESULTS = HERE / "results"
ROWS = (*CASES, *PFRL_CASES, *BEHAVIOUR_CASES, *SEQUENCE_CASES, *SLOW_CASES)
GAMMA, BOUND = 0.99, 1e-5
KINDS = {"loss": "losses", "gradient": "gradients", "live": "new weights", "target": "new targets"}
SIDES = {"d3rlpy": "fidelity_d3rlpy.py", "pfrl": "fidelity_pfrl.py", "slow": "fidelity_slow.py"}
SHOWN = {"slow": "slow, float64"}
Arrays = dict[str, np.ndarray]


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
        columns |= ahead(sizes[0], columns["terminated"], GAMMA)
    columns = {name: column.astype(case.dtype) if column.dtype == np.float32 else column for name, column in columns.items()}
    before = weights(learner)
    if case.unending:
        columns["terminated"][:] = 0
    with recording(learner) as (found, draws):
        learner.update(as_sequences(columns) if isinstance(wanted, Stretches) else as_batch(columns))
    tape = {f"draw/{k}": numbers for k, numbers in enumerate(case.tape(draws))}
    tape |= {f"drawn/{place}": numbers for place, numbers in draws} if case.peer == "slow" else {}
    theirs = {
        name: case.slope[n][0](array) if (n := name.partition("/")[2]) in case.slope else array for name, array in before.items()
    }
    for name, (_, slope) in case.slope.items():
        found[f"gradient/{name}"] = found[f"gradient/{name}"] * slope(before[f"live/{name}"])
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


def as_batch(columns: Arrays) -> Batch:
    tensors = {name: torch.from_numpy(column) for name, column in columns.items()}
    discount = GAMMA * (1 - tensors.pop("terminated"))
    extra = {"return_to_go": tensors.pop("return_to_go")}
    if "following" in tensors:
        extra["following"] = tensors.pop("following")
    extra |= {name.replace("_", "/", 1): tensors.pop(name) for name in list(tensors) if name.startswith("ahead_")}
    return Batch(**tensors, discount=discount, index=torch.arange(BATCH), extra=extra)


@contextmanager
def recording(learner: Learner) -> Iterator[tuple[Arrays, Draws]]:
    """Keeps, within it, losses and gradients by name, and every number that a loss draws, by `LOSS/NAME`."""
    found: Arrays = {}
    draws: Draws = []
    gradients = learner.gradients

    def watched(loss: Any, names: tuple[str, ...], batch: Batch, key: torch.Tensor, **more: Any) -> Any:
        place[0] = loss.__name__
        answer = gradients(loss, names, batch, key, **more)
        found[f"loss/{loss.__name__}"] = answer[1].detach().numpy()
        left = iter(answer[0])
        for name in names:
            taken = {parameter: next(left) for parameter in learner.live[name]}
            found.update({f"gradient/{k}": v for k, v in by_layer(name, learner.modules[name], taken).items()})
        return answer

    place = [""]

    def drawn(draw: Any) -> Any:
        def record(self: Any, *arguments: Any) -> torch.Tensor:
            numbers = draw(self, *arguments)
            draws.append((f"{place[0]}/{arguments[0]}", numbers.numpy()))
            return numbers

        return record

    with (
        mock.patch.object(learner, "gradients", watched),
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


def markdown(report: dict[str, Any], rows: list[list[str]]) -> str:
    header = ["algorithm", "beside", *KINDS.values(), f"≤ {BOUND:.0e}", "what differs all the same"]
    versions = "; ".join(f"{side}: {', '.join(f'{n} {v}' for n, v in used.items())}" for side, used in report["versions"].items())
    return "\n".join(
        [
            "# Fidelity",
            "",
            table(header, rows),
            "",
            "One update from the same weights, batch and random numbers, in float32 unless a row says float64; the largest",
            "‖ours - theirs‖ / ‖theirs‖.",
            "Gradients are each network's as its optimiser gets it; weights and targets are those after the update.",
            "What differs is what no setting brings in line; the row is then compared where both agree, as it says. A number that",
            "is what two larger ones leave of each other may be apart by what float32 rounds these.",
            "Beside `slow, float64` stand algorithms that neither peer has: the same update by loops over single samples, from the",
            "equations alone (`tests/algos/slow_losses.py`). In float64 all losses are held against such versions, to 1e-10, in",
            "`tests/algos`; so are FQF critics, which neither peer has.",
            "",
            f"{report['date']}. {versions}.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="One update beside d3rlpy 2.8.1, PFRL 0.4.0 and slow versions.")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="rows whose label has it; the others stay as they are")
    options = parser.parse_args()
    cases = [case for case in ROWS if not options.only or any(part in case.label for part in options.only)]
    torch.set_num_threads(1)
    report: dict[str, Any] = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "bound": BOUND, "versions": {}, "rows": []}
    before = json.loads((RESULTS / "fidelity.json").read_text())["rows"] if options.only else []
    found_rows = {(one["peer"], one["label"]): one for one in before}
    with tempfile.TemporaryDirectory(prefix="d3ray-fidelity-") as name:
        folder = Path(name)
        log = folder / "workers.log"
        with Worker("ours.py", 1, log) as worker:
            report["versions"]["d3ray"] = worker("versions")
        for peer, script in SIDES.items():
            with Worker(script, 1, log) as worker:
                report["versions"][peer] = worker("versions")
                for number, case in enumerate(case for case in cases if case.peer == peer):
                    given, answer = folder / f"{peer}-{number}.npz", folder / f"{peer}-{number}-answer.npz"
                    try:
                        found = ours(case, given)
                        actions = 2 if case.discrete else 3
                        worker(
                            "update",
                            arrays=str(given),
                            answer=str(answer),
                            algorithm=dict(case.theirs),
                            actions=actions,
                            step=case.their_step,
                            **({"dtype": case.dtype} if peer == "d3rlpy" else {}),
                        )
                        with np.load(answer) as theirs:
                            distances = compared(case, found, theirs)
                    except RuntimeError as error:
                        sys.exit(f"{case.label}: {error}\n{log.read_text()[-3_000:]}")
                    one = {
                        "algorithm": case.ours["name"],
                        "label": case.label,
                        "peer": peer,
                        "met": met(case, distances),
                        "tensors": distances,
                    }
                    found_rows[peer, case.label] = one
    there = [(case, one) for peer in SIDES for case in ROWS if case.peer == peer and (one := found_rows.get((peer, case.label)))]
    report["rows"] = [{**one, "difference": case.difference} for case, one in there]
    text = markdown(report, [row(case, one["tensors"]) for case, one in there])
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "fidelity.md").write_text(text)
    (RESULTS / "fidelity.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    if not all(r["met"] for r in report["rows"]):
        sys.exit(1)


if __name__ == "__main__":
    main()
