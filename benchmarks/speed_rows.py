"""The rows of the speed table: what each side does, on what, and what the ratio should be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from speed_bench import Bench, Group, Row, Side
from workers import Worker

# ---- whole `fit`, beside d3rlpy


@dataclass(frozen=True)
class Fits:
    """A row of whole `fit` calls on both sides; `n` and `m` are updates of a measurement, about two seconds each."""

    label: str
    ours: dict[str, Any]
    theirs: dict[str, Any]
    n: int
    m: int
    at_least: float
    discrete: bool = False
    hidden: tuple[int, ...] = (256, 256)
    mixed: bool = False
    compiled: bool = False

    @property
    def algorithm(self) -> str:
        return str(self.ours["name"])

    def settings(self) -> dict[str, Any]:
        """Ours, with the networks of the row."""
        nets = {"hidden_units": self.hidden}
        names = {
            **dict.fromkeys(("DQN", "BC", "DoubleDQN", "DiscreteCQL", "DiscreteBCQ", "NFQ", "FQE"), ("encoder",)),
            "DecisionTransformer": ("encoder",),
            "IQL": ("actor_encoder", "critic_encoder", "value_encoder"),
            "XQL": ("actor_encoder", "critic_encoder", "value_encoder"),
            "AWR": ("actor_encoder", "value_encoder"),
        }.get(self.ours["name"], ("actor_encoder", "critic_encoder"))
        names += ("imitator_encoder",) if self.ours["name"] in IMITATORS else ()
        return {**self.ours, **dict.fromkeys(names, nets), **self._run()}

    def _run(self) -> dict[str, Any]:
        return {**({"matmul_precision": "bfloat16"} if self.mixed else {}), **({"compile_graph": True} if self.compiled else {})}

    @contextmanager
    def __call__(self, bench: Bench, device: str) -> Iterator[list[Row]]:
        ours, _, theirs = bench.cartpole() if self.discrete else bench.hopper()
        settings = dict(self.theirs)
        name = settings.pop("name")
        with bench.worker("ours.py") as a, bench.worker("peer.py") as b:
            n, m = bench.amount(self.n), bench.amount(self.m)
            a("set_up_fit", dataset=ours, algorithm=self.settings(), device=device, warm=max(4, n // 8))
            settings["hidden_units"] = self.hidden
            b("set_up_fit", dataset=theirs, name=name, settings=settings, device=device, warm=max(4, m // 8))
            yield [
                Row(
                    f"{self.label}: whole `fit`"
                    + (", ours in bfloat16" if self.mixed else "")
                    + (", ours compiled" if self.compiled else ""),
                    "updates/s",
                    Side("d3ray", lambda: a("fit", n=n), n),
                    Side("d3rlpy", lambda: b("fit", n=m), m),
                    at_least=self.at_least if not self.mixed or device != "cpu" or has_bfloat16() else None,
                )
            ]


IMITATORS = ("BCQ", "BEAR", "MCQ", "PLAS", "PLASWithPerturbation", "SPOT")  # with a model of the data's behaviour
QR: dict[str, Any] = {"q_function": {"name": "qr"}}
# d3rlpy's continuous IQN runs only where its greedy fractions are as many as those it draws.
OUR_IQN: dict[str, Any] = {"q_function": {"name": "iqn", "n_quantiles": 32, "n_target_quantiles": 32, "n_greedy_quantiles": 32}}
THEIR_IQN: dict[str, Any] = {"q_function": {"name": "iqn", "n_quantiles": 32, "n_greedy_quantiles": 32}}
LARGE: dict[str, Any] = {"batch_size": 256}


def _plain(name: str, label: str, n: int, m: int, at_least: float) -> Fits:
    preset = {} if name == "TD3PlusBC" else {"preset": "d3rlpy"}
    return Fits(f"{label}, batch 256, 256×256", {"name": name, **preset, **LARGE}, {"name": name, **LARGE}, n, m, at_least)


def _bound(name: str, label: str, n: int, m: int, **settings: Any) -> Fits:
    """An algorithm that matrix products may bound; without a warm-up, whose updates are not those that count."""
    same = {"name": name, **LARGE, **settings}
    return Fits(f"{label}, batch 256, 256×256", {"preset": "d3rlpy", **same}, same, n, m, 0.95)


def _mixed(fits: Fits, scale: float = 1.6) -> Fits:
    return replace(fits, mixed=True, n=int(fits.n * scale), at_least=1.5)


def _compiled(fits: Fits, at_least: float) -> Fits:
    """What compiles comes before what is measured."""
    return replace(fits, compiled=True, n=2 * fits.n, at_least=at_least)


def _critic(name: str, label: str, kind: str, n: int, m: int) -> Fits:
    discrete = name == "DQN"
    ours, theirs = (QR, QR) if kind == "QR" else (OUR_IQN, THEIR_IQN)
    size = {"batch_size": 32} if discrete else LARGE
    preset = {} if name == "TD3PlusBC" else {"preset": "d3rlpy"}
    return Fits(
        f"{label} with {kind} critics of 32, batch {size['batch_size']}, 256×256",
        {"name": name, **preset, **size, **ours},
        {"name": name, **size, **theirs},
        n,
        m,
        1.3,
        discrete=discrete,
    )


DQN = Fits(
    "DQN, batch 32, 256×256", {"name": "DQN", "preset": "d3rlpy"}, {"name": "DQN", "batch_size": 32}, 1_800, 550, 2.5, discrete=True
)
DISCRETE = {"double-dqn": "DoubleDQN", "discrete-cql": "DiscreteCQL", "discrete-bcq": "DiscreteBCQ", "nfq": "NFQ"}
DISCRETE |= {"discrete-sac": "DiscreteSAC"}


def _discrete(name: str) -> Fits:
    preset = {"optimizer": "adam"} if name == "DoubleDQN" else {"preset": "d3rlpy"}
    ours, theirs = {"name": name, **preset, "batch_size": 32}, {"name": name, "batch_size": 32}
    return Fits(f"{name}, batch 32, 256×256", ours, theirs, 900, 300, 1.5 if name == "DiscreteSAC" else 2.5, discrete=True)


FQE = Fits(
    "FQE of a TD3+BC, batch 100, 256×256, asked before",
    {"name": "FQE", "judged": "TD3PlusBC"},
    {"name": "FQE", "judged": "TD3PlusBC"},
    1_800,
    550,
    1.6,
)
DT = Fits(
    "Decision Transformer, batch 64, 20 steps, 128 wide",
    {"name": "DecisionTransformer", "preset": "d3rlpy"},
    {"name": "DecisionTransformer"},
    16,
    12,
    0.95,
    hidden=(128,),
)


# ---- d3ray beside itself


@dataclass(frozen=True)
class Updates:
    """What one of two workers of ours does in a measurement: `n` calls of the update of an algorithm, alone or of stacked seeds."""

    label: str
    algorithm: dict[str, Any]
    n: int
    seeds: int = 1


@contextmanager
def both(bench: Bench, device: str, dataset: str, one: Updates, other: Updates) -> Iterator[tuple[Side, Side]]:
    """Two workers, each warm with its fit."""
    with bench.worker("ours.py") as a, bench.worker("ours.py") as b:

        def side(worker: Worker, fit: Updates) -> Side:
            n = bench.amount(fit.n)
            worker("set_up_fit", dataset=dataset, algorithm=fit.algorithm, device=device, warm=max(4, n // 8), seeds=fit.seeds)
            return Side(fit.label, lambda: worker("fit", n=n), fit.seeds * n)

        yield side(a, one), side(b, other)


@dataclass(frozen=True)
class Stacked:
    """Some stacked seeds and one, for as many updates: what a call of `fit` does once is then the same share of both."""

    fits: Fits
    n: int
    at_least: float
    seeds: int = 8

    @property
    def algorithm(self) -> str:
        return self.fits.algorithm

    @property
    def ours(self) -> dict[str, Any]:
        return self.fits.ours

    @contextmanager
    def __call__(self, bench: Bench, device: str) -> Iterator[list[Row]]:
        ours = (bench.cartpole() if self.fits.discrete else bench.hopper())[0]
        settings = self.fits.settings()
        stack, single = Updates(f"{self.seeds} seeds", settings, self.n, self.seeds), Updates("1 seed", settings, self.n)
        with both(bench, device, ours, stack, single) as (a, b):
            yield [Row(f"{self.fits.label}: {self.seeds} stacked seeds and one", "seed-updates/s", a, b, at_least=self.at_least)]


@dataclass(frozen=True)
class Beside:
    """An algorithm that no peer has, and the one of ours that it is made of, with the same batch and networks."""

    fits: Fits
    base: Fits
    n: int

    @property
    def algorithm(self) -> str:
        return self.fits.algorithm

    @property
    def ours(self) -> dict[str, Any]:
        return self.fits.ours

    @contextmanager
    def __call__(self, bench: Bench, device: str) -> Iterator[list[Row]]:
        name, base = (fits.label.partition(",")[0] for fits in (self.fits, self.base))
        one, other = Updates(name, self.fits.settings(), self.n), Updates(base, self.base.settings(), self.base.n)
        with both(bench, device, bench.hopper()[0], one, other) as (a, b):
            yield [Row(f"{self.fits.label}: whole `fit`, beside {base}", "updates/s", a, b)]


@dataclass(frozen=True)
class Mixed:
    """Encoders in bfloat16 and all in float32."""

    fits: Fits
    at_least: float

    @property
    def algorithm(self) -> str:
        return self.fits.algorithm

    @property
    def ours(self) -> dict[str, Any]:
        return self.fits.ours

    @contextmanager
    def __call__(self, bench: Bench, device: str) -> Iterator[list[Row]]:
        settings, n = self.fits.settings(), self.fits.n
        mixed, whole = (Updates(precision, {**settings, "matmul_precision": precision}, n) for precision in ("bfloat16", "float32"))
        with both(bench, device, bench.hopper()[0], mixed, whole) as (a, b):
            at_least = self.at_least if device != "cpu" or has_bfloat16() else None
            yield [Row(f"{self.fits.label}: bfloat16 and float32", "updates/s", a, b, at_least=at_least)]


def has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 matrices by instructions of its own."""
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text() if cpuinfo.is_file() else ""
    return "avx512_bf16" in flags or "amx_bf16" in flags


@contextmanager
def draws(bench: Bench, device: str) -> Iterator[list[Row]]:
    one, four, theirs = bench.hopper()
    with bench.worker("ours.py") as shard, bench.worker("ours.py") as node_map, bench.worker("peer.py") as peer:
        shard("set_up_draws", dataset=one, batch_size=256, device=device, warm=500)
        node_map("set_up_draws", dataset=four, batch_size=256, device=device, warm=500)
        peer("set_up_draws", dataset=theirs, batch_size=256, device=device, warm=50)
        node_map("set_up_fit", dataset=four, algorithm=TD3_PLUS_BC.settings(), device=device, warm=100)
        n, m, k = bench.amount(20_000), bench.amount(500), bench.amount(300)
        rival = Side("d3rlpy", lambda: peer("draw", n=m), m)
        mapped = Side("d3ray", lambda: node_map("draw", n=n), n)
        whole = Side("d3ray", lambda: shard("draw", n=n), n)
        yield [
            Row("a batch of 256 from 1 M rows, node map", "batches/s", mapped, rival, at_least=15),
            Row("a batch of 256 from 1 M rows, one shard", "batches/s", whole, rival, at_least=15),
            Row(
                "that batch (node map) beside a TD3+BC update",
                "per second",
                Side("draw", mapped.measure, n),
                Side("update", lambda: node_map("fit", n=k), k),
                at_most=0.05,
            ),
        ]


@contextmanager
def trial(bench: Bench, device: str) -> Iterator[list[Row]]:
    ours = bench.hopper()[0]
    epochs, steps = 4, bench.amount(400)
    work = {"dataset": ours, "algorithm": TD3_PLUS_BC.settings(), "n_epochs": epochs, "n_steps_per_epoch": steps}
    counted = (epochs - 1) * steps
    with bench.worker("in_tune.py") as a, bench.worker("in_tune.py") as b:
        a("start_ray", threads=bench.threads)
        for side, extra in ((a, {"threads": bench.threads}), (b, {})):  # imports, first files of Ray, page cache
            side("inside" if extra else "outside", **{**work, "n_epochs": 2, "n_steps_per_epoch": 50}, **extra)
        yield [
            Row(
                "TD3+BC: a trial inside Tune and the same outside",
                "updates/s",
                Side("inside", lambda: a("inside", **work, threads=bench.threads), counted),
                Side("outside", lambda: b("outside", **work), counted),
                at_least=0.95,
            )
        ]


@contextmanager
def pixels(bench: Bench, device: str) -> Iterator[list[Row]]:
    """DQN from stacks of four frames with the network of Mnih et al. 2015: beside d3rlpy, and beside bare torch."""
    ours, _, theirs = bench.frames()
    settings = {"preset": "d3rlpy", "observation_scaler": "pixel", "sampler": {"name": "uniform", "frames": 4}}
    with bench.worker("ours.py") as a, bench.worker("peer.py") as peer, bench.worker("bare_torch.py") as bare:
        n, m, k = bench.amount(60), bench.amount(50), bench.amount(1_000)
        a("set_up_fit", dataset=ours, algorithm={"name": "DQN", **settings}, device=device, warm=max(4, n // 8))
        peer("set_up_fit", dataset=theirs, name="DQN", settings={"observation_scaler": "pixel"}, device=device, warm=4)
        bare("set_up_fit", dataset=theirs, batch_size=32, device=device, warm=4)
        label, fit = "DQN from 84×84×4 pixels, batch 32", Side("d3ray", lambda: a("fit", n=n), n)
        yield [
            Row(f"{label}: whole `fit`", "updates/s", fit, Side("d3rlpy", lambda: peer("fit", n=m), m), at_least=1.0),
            Row(f"{label}: whole `fit`", "updates/s", fit, Side("bare torch", lambda: bare("fit", n=n), n), at_least=0.9),
            Row(
                f"{label}: a batch of it beside an update",
                "per second",
                Side("draw", lambda: a("draw_for_fit", n=k), k),
                Side("update", fit.measure, n),
                at_most=0.10,
            ),
        ]


def _beside(name: str, label: str, base: Fits, n: int, **settings: Any) -> Beside:
    fits = Fits(f"{label}, batch 256, 256×256", {"name": name, **LARGE, **settings}, {}, 0, 0, 0)
    return Beside(fits, base, n)


BCQ = _bound("BCQ", "BCQ", 8, 7)
BEAR = _bound("BEAR", "BEAR", 60, 40, warmup_steps=0)
CQL = _bound("CQL", "CQL", 24, 20)
CRR = _bound("CRR", "CRR", 120, 60)
REBRAC = _bound("ReBRAC", "ReBRAC", 240, 100)
TD3_PLUS_BC = _plain("TD3PlusBC", "TD3+BC", 300, 140, 1.7)
SAC = _plain("SAC", "SAC", 180, 100, 1.5)
IQL = _plain("IQL", "IQL", 300, 140, 1.5)
TD3 = _plain("TD3", "TD3", 300, 150, 1.6)
SMALL = Fits("TD3+BC, batch 256, 64×64", {"name": "TD3PlusBC", **LARGE}, {}, 0, 0, 0, hidden=(64, 64))
SMALL_DQN = Fits("DQN, batch 32, 64×64", {"name": "DQN", "batch_size": 32}, {}, 0, 0, 0, discrete=True, hidden=(64, 64))
GROUPS: dict[str, Group] = {
    "td3+bc": TD3_PLUS_BC,
    "sac": SAC,
    "iql": IQL,
    "bc": _plain("BC", "BC", 1_800, 1_000, 1.4),
    "td3": TD3,
    "ddpg": _plain("DDPG", "DDPG", 360, 180, 1.6),
    "awac": _bound("AWAC", "AWAC", 120, 60),
    "bcq": BCQ,
    "bear": BEAR,
    "cal-ql": _bound("CalQL", "CalQL", 24, 20),
    "cql": CQL,
    "crr": CRR,
    "plas": _bound("PLAS", "PLAS", 240, 120, warmup_steps=0),
    "plas+p": _bound("PLASWithPerturbation", "PLAS+P", 200, 100, warmup_steps=0),
    "rebrac": REBRAC,
    # its phases are short here, in the same proportion, so that a measurement has both
    "awr": _beside("AWR", "AWR", IQL, 96, n_value_updates=1, n_actor_updates=5),
    "edac": _beside("EDAC", "EDAC of ten critics", SAC, 24),
    "mcq": _beside("MCQ", "MCQ", SAC, 24),
    "sac-n": _beside("SACN", "SAC-N of ten critics", SAC, 40),
    "spot": _beside("SPOT", "SPOT", TD3, 200, warmup_steps=0),
    "xql": _beside("XQL", "XQL", IQL, 240),
    "dqn": DQN,
    **{label: _discrete(name) for label, name in DISCRETE.items()},
    "dqn-compiled": _compiled(DQN, 3.5),
    "td3+bc-compiled": _compiled(TD3_PLUS_BC, 1.9),
    "dt": DT,
    "fqe": FQE,
    "td3+bc-qr": _critic("TD3PlusBC", "TD3+BC", "QR", 180, 90),
    "td3+bc-iqn": _critic("TD3PlusBC", "TD3+BC", "IQN", 40, 20),
    "sac-qr": _critic("SAC", "SAC", "QR", 130, 60),
    "sac-iqn": _critic("SAC", "SAC", "IQN", 40, 20),
    "dqn-qr": _critic("DQN", "DQN", "QR", 1_200, 350),
    "dqn-iqn": _critic("DQN", "DQN", "IQN", 400, 120),
    "bf16": Mixed(TD3_PLUS_BC, 1.3),
    "bcq-bf16": _mixed(BCQ),
    "bear-bf16": _mixed(BEAR),
    "cql-bf16": _mixed(CQL),
    "stack-256": Stacked(TD3_PLUS_BC, 120, 0.95),
    "stack-64": Stacked(SMALL, 480, 1.4),
    "stack-dqn": Stacked(SMALL_DQN, 1_800, 3.0),
    "stack-bcq": Stacked(BCQ, 8, 0.95, seeds=4),
    "stack-cql": Stacked(CQL, 16, 0.95, seeds=4),
    "stack-crr": Stacked(CRR, 120, 0.95, seeds=4),
    "stack-rebrac": Stacked(REBRAC, 120, 0.95, seeds=4),
    "pixels": pixels,
    "draws": draws,
    "trial": trial,
}
# One row for each continuous algorithm that both have: the geometric mean over them is asked for.
SHARED = (
    *("td3+bc", "sac", "iql", "bc", "td3", "ddpg"),
    *("awac", "bcq", "bear", "cal-ql", "cql", "crr", "plas", "plas+p", "rebrac", "dt"),
)
SHARED_AT_LEAST = 1.5
CPU_ONLY = ("trial",)
SPENT = ("td3+bc", "sac", "iql", "bc", "bcq", "bear", "cql", "dqn", "td3+bc-iqn")  # rows of the second table
