"""The rows of the GPU table: kinds of work, who does them, and what is asked of d3ray on a card of the H200's class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tasks import cartpole_like, for_peer, frames_like, hopper_like

from d3ray.data.dataset import Dataset


@dataclass(frozen=True)
class Contender:
    """Who does the work: the script of its process, and whether its graphs are compiled by its own setting for that."""

    script: str
    compiled: bool = False


CONTENDERS = {
    "d3ray": Contender("gpu_ours.py"),
    "d3ray, compile_graph": Contender("gpu_ours.py", compiled=True),
    "d3rlpy": Contender("gpu_d3rlpy.py"),
    "d3rlpy, compile_graph": Contender("gpu_d3rlpy.py", compiled=True),
    "bare torch": Contender("gpu_bare.py"),
    "JAX": Contender("gpu_jax.py"),
}
OURS = ("d3ray", "d3ray, compile_graph")
PEERS = ("d3rlpy", "d3rlpy, compile_graph")
PROGRAMS = ("bare torch", "JAX")


@dataclass(frozen=True)
class Target:
    """At least so many a second; or so many times the speed of a contender."""

    at_least: float
    over: str = ""

    def __str__(self) -> str:
        return f"≥ {self.at_least:g} × {self.over}" if self.over else f"≥ {self.at_least:,.0f}"


@dataclass(frozen=True)
class Work:
    """A kind of work.

    Attributes:
        label: what the table calls it.
        algorithm: by its name in the registry; d3rlpy's is the same.
        ours: its settings.
        theirs: d3rlpy's.
        data: by a name in `DATA`; "": it makes its own by acting.
        hidden: layers of every network; (): as the settings have them.
        seeds: that are stacked.
        contenders: who does it.
        targets: of d3ray.
        unit: of the rates.
        plain: the label of the same work in float32, which it is compared with; "": it is in float32.
    """

    label: str
    algorithm: str
    ours: dict[str, Any]
    theirs: dict[str, Any]
    data: str = "hopper"
    hidden: tuple[int, ...] = (256, 256)
    seeds: int = 1
    contenders: tuple[str, ...] = (*OURS, *PEERS)
    targets: tuple[Target, ...] = ()
    unit: str = "updates/s"
    plain: str = ""

    def told(self, contender: str) -> dict[str, Any]:
        """What its process is told."""
        return {**asdict(self), "compiled": CONTENDERS[contender].compiled}


LARGE: dict[str, Any] = {"batch_size": 256}
LIKE_D3RLPY: dict[str, Any] = {"preset": "d3rlpy", **LARGE}
FRAMES: dict[str, Any] = {"observation_scaler": "pixel", "sampler": {"name": "uniform", "frames": 4}}
PHASES: dict[str, Any] = {"update_interval": 1_024, "batch_size": 256, "n_passes": 10}


def _one(label: str, *targets: Target, seeds: int = 1, contenders: tuple[str, ...] = (*OURS, *PEERS)) -> Work:
    """Of TD3+BC, SAC, IQL, CQL."""
    algorithm = label.replace("TD3+BC", "TD3PlusBC")
    ours = LARGE if algorithm == "TD3PlusBC" else LIKE_D3RLPY
    named = label if seeds == 1 else f"{label}, {seeds} seeds"
    unit = "updates/s" if seeds == 1 else "seed-updates/s"
    return Work(named, algorithm, ours, LARGE, seeds=seeds, contenders=contenders, targets=targets, unit=unit)


def _in(precision: str) -> Work:
    """TD3+BC whose products are in another precision."""
    plain = _one("TD3+BC", contenders=OURS)
    return replace(plain, label=f"TD3+BC in {precision}", ours={**LARGE, "matmul_precision": precision}, plain=plain.label)


ALL = (*OURS, *PEERS, *PROGRAMS)
ROWS: dict[str, Work] = {
    "td3+bc": _one("TD3+BC", Target(6_000), Target(30, "d3rlpy, compile_graph"), Target(0.6, "JAX"), contenders=ALL),
    "td3+bc-10": _one("TD3+BC", Target(35_000), seeds=10, contenders=(*OURS, *PROGRAMS)),
    "td3+bc-50": _one("TD3+BC", Target(80_000), seeds=50, contenders=(*OURS, *PROGRAMS)),
    "iql": _one("IQL", Target(4_000)),
    "sac": _one("SAC", Target(4_000)),
    "cql": _one("CQL", Target(1_500)),
    "dqn": Work("DQN", "DQN", LIKE_D3RLPY, LARGE, data="cartpole", targets=(Target(8_000),)),
    "pixels": Work(
        "DQN from 84×84×4 frames, batch 32",
        "DQN",
        {"preset": "d3rlpy", **FRAMES, "batch_size": 32},
        {"observation_scaler": "pixel", "batch_size": 32},
        data="frames",
        hidden=(),
        targets=(Target(10, "d3rlpy"),),
    ),
    "rainbow": Work(
        "Rainbow from 84×84×4 frames, batch 32",
        "Rainbow",
        {"preset": "atari", "batch_size": 32},
        {},
        data="frames",
        hidden=(),
        contenders=("d3ray",),
    ),
    "dt": Work(
        "Decision Transformer, batch 64, 20 steps, 128 wide",
        "DecisionTransformer",
        {"preset": "d3rlpy", "batch_size": 64},
        {"batch_size": 64},
        hidden=(128,),
        contenders=("d3ray", *PEERS),
    ),
    "ppo": Work(
        "PPO in 8 CartPoles, batch 256, 10 passes over 1,024 steps",
        "PPO",
        PHASES,
        {},
        data="",
        contenders=("d3ray",),
        unit="steps/s",
    ),
    "td3+bc-tf32": _in("tf32"),
    "td3+bc-bfloat16": _in("bfloat16"),
}
TRIALS = "trials"  # the other row: four shares of a GPU through Ray
FRAME_ROWS = 10_000
DATA: dict[str, Callable[[int], Dataset]] = {"hopper": hopper_like, "cartpole": cartpole_like, "frames": frames_like}


def written(name: str, rows: int, folder: Path) -> dict[str, str]:
    """The files of some data, made where they are not there: as `gpu_side.Contender.build` takes them."""
    if not name:
        return {}
    ours, theirs = folder / name, folder / f"{name}.npz"
    if not theirs.exists():
        dataset = DATA[name](min(rows, FRAME_ROWS) if name == "frames" else rows)
        dataset.write(ours, n_shards=1)
        for_peer(dataset, theirs)
    return {"ours": str(ours), "theirs": str(theirs)}
