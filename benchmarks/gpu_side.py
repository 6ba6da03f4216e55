"""Whoever does work in the table of `gpu.py`: each is a process that begins one kind of work, warms it up, and is asked in turn.

d3ray is here as whole calls of `fit`, of one seed or of a stack, and an online run of what learns on-policy; d3rlpy 2.8.1 as whole
calls of `fit`, eager and with its `compile_graph`; programs of that one update are `gpu_bare.py` and `gpu_jax.py`. Here too are the
control loop, a fixed product on the device that is timed beside every measurement, and trials through Ray on shares of a GPU.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import time
import types
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from workers import serve

N_ENVS = 8
UPDATES = 20  # after which precisions are compared
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaMemsetAsync")
EPOCHS, SHARE = 5, 4  # of trials through Ray
PLAN_SECONDS = 8.0  # that probing may take
Points = tuple[np.ndarray, np.ndarray]  # when each epoch ended, in seconds, and how many updates were done


class Contender:
    """One way to do a kind of work on a device.

    Attributes:
        grain: updates that are done at once; a measurement is of a multiple of them.
        each: what one update counts: seeds that are stacked, or steps of all environments.
    """

    grain = 1
    each = 1

    def build(self, work: Mapping[str, Any], device: str, data: Mapping[str, str], rows: int) -> None:
        """Makes what learns, without an update.

        Args:
            work: fields of `gpu.Work`, and `compiled`.
            device: as torch names it.
            data: the folder of d3ray's dataset, `ours`, and the file of d3rlpy's, `theirs`; empty where the work needs none.
            rows: of the data; what makes its own has as many.
        """
        raise NotImplementedError

    def run(self, n: int) -> None:
        """Does `n` updates and waits until the device has done them."""
        raise NotImplementedError

    def memory(self) -> float | None:
        """MiB of the device that were allocated at most; None where it cannot be told."""
        return None

    # ---- what is asked

    def begin(self, work: Mapping[str, Any], device: str, data: Mapping[str, str], rows: int) -> dict[str, float]:
        """Builds, and does the first update: its seconds, with what it compiles and copies to the device."""
        self.build(work, device, data, rows)
        return {"first": self.seconds(self.grain)}

    def warm(self, seconds: float) -> dict[str, float]:
        """Runs until a measurement of about so many seconds is the same twice: how many updates that is, and what it took."""
        begin, n = time.perf_counter(), self.grain
        while True:
            took = self.seconds(n)
            if took >= seconds / 2 and (took := self.seconds(n)) >= seconds / 2:
                break
            n = self.whole(n * min(max(seconds / took, 2), 10))
        return {"n": self.whole(n * seconds / took), "took": time.perf_counter() - begin}

    def measure(self, n: int) -> dict[str, float]:
        """So many updates, as a rate of what they count."""
        seconds = self.seconds(n)
        return {"seconds": seconds, "per_second": n * self.each / seconds}

    def trace(self, n: int) -> dict[str, float]:
        """Kernels, launches by the host and device time of an update: what twice `n` updates have beyond `n`."""
        n = max(n // self.grain, 1) * self.grain
        fewer, more = traced(self, n), traced(self, 2 * n)
        return {name: (more[name] - fewer[name]) / n for name in more}

    def seconds(self, n: int) -> float:
        begin = time.perf_counter()
        self.run(n)
        return time.perf_counter() - begin

    def whole(self, n: float) -> int:
        """A multiple of the grain, and of 100 where that is little."""
        grain = self.grain if n < 1_000 else max(self.grain, 100)
        return max(round(n / grain), 1) * grain


def traced(contender: Contender, n: int) -> dict[str, float]:
    """What the device did in `n` updates, and how often the host started something."""
    import torch
    from torch.autograd import DeviceType

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        contender.run(n)
    found = {"kernels": 0.0, "launches": 0.0, "device_us": 0.0}
    for event in profile.events() or ():
        if event.device_type == DeviceType.CUDA:
            found["kernels"] += 1
            found["device_us"] += event.time_range.elapsed_us()
        elif event.name.startswith(LAUNCHES):
            found["launches"] += 1
    if not found["kernels"]:
        raise RuntimeError("the profiler saw no kernel")
    return found


def wait_for(device: str) -> None:
    """Until a CUDA device has done what it was given."""
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def most_allocated(device: str) -> float | None:
    """MiB that torch had allocated at most."""
    import torch

    return torch.cuda.max_memory_allocated(device) / 2**20 if device.startswith("cuda") else None


def product(device: str) -> float:
    """The control loop: milliseconds that a fixed product takes."""
    import torch

    size, times = (4096, 10) if device.startswith("cuda") else (512, 20)
    factor = torch.full((size, size), 1 / size, device=device)
    wait_for(device)
    begin, value = time.perf_counter(), factor
    for _ in range(times):
        value = value @ factor
    wait_for(device)
    return (time.perf_counter() - begin) * 1e3


# ---- d3ray


class Ours(Contender):
    """An algorithm and its data."""

    subject: Any
    dataset: Any = None

    def begin(self, work: Mapping[str, Any], device: str, data: Mapping[str, str], rows: int) -> dict[str, float]:
        """As any; where products are not in float32, also how far its parameters are from those of float32 after a few updates."""
        found = super().begin(work, device, data, rows)
        return found | ({"gap": self.gap(work)} if work["plain"] else {})

    def gap(self, work: Mapping[str, Any]) -> float:
        """The norm of the difference of all parameters over that of the parameters, of one seed that is captured."""
        import torch

        from d3ray.algos.registry import algorithm_class

        mine = algorithm_class(work["algorithm"])(seed=0, device=self.device, **work["ours"])
        ends = list[torch.Tensor]()
        for one in (mine, mine.unfitted().set_params(matmul_precision="float32")):
            state = one.fit(self.dataset, UPDATES).state()[0]
            ends.append(torch.cat([t.double().flatten() for name, t in state.items() if name.startswith("live/")]))
        other, plain = ends
        return float((other - plain).norm() / plain.norm())

    def build(self, work: Mapping[str, Any], device: str, data: Mapping[str, str], rows: int) -> None:
        from d3ray.algos.online.run import OnlineRun
        from d3ray.algos.registry import algorithm_class, make_algorithm
        from d3ray.algos.stack import Stack
        from d3ray.data.dataset import Dataset

        self.device = device
        settings = {"name": work["algorithm"], **work["ours"], "compile_graph": bool(work["compiled"])}
        if work["hidden"]:
            encoders = [name for name in algorithm_class(work["algorithm"]).Config.model_fields if name.endswith("encoder")]
            settings |= {name: {"hidden_units": work["hidden"]} for name in encoders if name != "share_encoder"}
        algorithm = make_algorithm(settings, seed=0, device=device)
        if not data:
            self.subject = OnlineRun(algorithm, "CartPole-v1", n_envs=N_ENVS)
            self.grain, self.each = settings["update_interval"] // N_ENVS, N_ENVS
            return
        self.each = work["seeds"]
        self.subject = algorithm if self.each == 1 else Stack(algorithm, range(self.each))
        self.dataset = Dataset.open(data["ours"])

    def run(self, n: int) -> None:
        if self.dataset is None:
            for _ in range(n):
                self.subject.step()
        else:
            self.subject.fit(self.dataset, n_steps=n, n_steps_per_epoch=n, show_progress=False)
        wait_for(self.device)

    def memory(self) -> float | None:
        return most_allocated(self.device)


# ---- d3rlpy


class Theirs(Contender):
    """An algorithm and its data."""

    def build(self, work: Mapping[str, Any], device: str, data: Mapping[str, str], rows: int) -> None:
        stand_in_for_gym()
        import d3rlpy
        import d3rlpy_side

        d3rlpy.seed(0)
        self.device, self.quiet = device, d3rlpy_side.QUIET
        settings = {**work["theirs"], "compile_graph": bool(work["compiled"])}
        if work["hidden"]:
            settings["hidden_units"] = work["hidden"]
        self.algorithm: Any = d3rlpy_side.make(work["algorithm"], settings, device)
        self.dataset = d3rlpy_side.open_dataset(data["theirs"])

    def run(self, n: int) -> None:
        self.algorithm.fit(self.dataset, n_steps=n, n_steps_per_epoch=n, **self.quiet)
        wait_for(self.device)

    def memory(self) -> float | None:
        return most_allocated(self.device)


def stand_in_for_gym() -> None:
    """Makes `import gym` give what d3rlpy names of it, from gymnasium, where gym itself is not installed."""
    if find_spec("gym") is not None:
        return
    import gymnasium

    class Wrapped(gymnasium.Wrapper[Any, Any, Any, Any]):
        """It may be subscripted by two types, as gym's; gymnasium's takes four."""

        def __class_getitem__(cls, types: Any) -> Any:
            return cls

    def module(name: str, **names: Any) -> types.ModuleType:
        made = sys.modules[name] = types.ModuleType(name)
        made.__dict__.update(names)
        return made

    inside = gymnasium.wrappers
    limit = module("gym.wrappers.time_limit", TimeLimit=inside.TimeLimit)
    reward = module("gym.wrappers.transform_reward", TransformReward=inside.TransformReward)
    wrappers = module("gym.wrappers", time_limit=limit, transform_reward=reward, RecordVideo=inside.RecordVideo)
    version = module("gym.version", VERSION=gymnasium.__version__)
    spaces = sys.modules["gym.spaces"] = gymnasium.spaces
    names = {"Env": gymnasium.Env, "Wrapper": Wrapped, "make": gymnasium.make, "__version__": gymnasium.__version__}
    module("gym", **names, wrappers=wrappers, version=version, spaces=spaces)


# ---- trials through Ray


class Trials:
    """One Ray, and the experiments in it: one trial alone, four beside each other, and what the plan says.

    Rates are from the end of the first epoch to that of the last, as the trials' own metrics say; those of trials side by side are
    of the time in which all of them train. On the CPU a trial has a quarter of the cores in place of a quarter of the GPU.
    """

    settings: dict[str, Any]

    def start_ray(self, dataset: str, folder: str, device: str) -> dict[str, float]:
        """Its seconds."""
        begin = time.perf_counter()
        import ray  # without which nothing here can be done

        from d3ray.platform.cluster.session import ray_session

        os.environ["RAY_AUTH_MODE"] = "token"
        cores, on_cuda = len(os.sched_getaffinity(0)), device.startswith("cuda")
        session = ray_session(num_cpus=cores)
        session.__enter__()
        atexit.register(session.__exit__, None, None, None)
        if on_cuda and not ray.cluster_resources().get("GPU"):
            raise RuntimeError("Ray sees no GPU")
        share = {"cpu": max(cores // 8, 1), "gpu": 1 / SHARE} if on_cuda else {"cpu": cores / SHARE}
        algorithm = {"name": "TD3PlusBC", "batch_size": 256}
        self.settings = {"dataset": dataset, "algorithm": algorithm, "resources": share, "storage": f"{folder}/results"}
        return {"ray": time.perf_counter() - begin}

    def config(self, name: str, seeds: Sequence[int], n_steps: int) -> Any:
        from d3ray.platform.settings.config import ExperimentConfig

        n_steps = max(n_steps // EPOCHS, 1) * EPOCHS
        steps = {"n_steps": n_steps, "n_steps_per_epoch": n_steps // EPOCHS}
        return ExperimentConfig.checked({**self.settings, **steps, "name": name, "seeds": list(seeds)})

    def train(self, name: str, seeds: Sequence[int], n_steps: int) -> dict[str, float]:
        """Updates a second of all seeds together while all train, and the seconds of the whole experiment."""
        from d3ray import experiments
        from d3ray.platform.experiment.run import run_experiment

        begin = time.perf_counter()
        result = run_experiment(self.config(name, seeds, n_steps))
        seconds = time.perf_counter() - begin
        if failed := [seed for seed in result.seeds if seed.status != "FINISHED"]:
            raise RuntimeError(f"{len(failed)} of {len(seeds)} trials failed: {failed[0].reason}")
        found = defaultdict[int, set[tuple[float, int]]](set)
        for line in experiments.open(name, storage=self.settings["storage"]).metrics():
            found[line.seed].add((line.time, line.step))
        points = [(times, steps) for times, steps in (np.array(sorted(one)).T for one in found.values())]
        return {"per_second": together(points), "seconds": seconds, "first": min(times[0] for times, _ in points)}

    def plan(self, seeds: Sequence[int], n_steps: int) -> dict[str, float]:
        """What `--plan` says of it, with a shorter probe."""
        from d3ray.platform.experiment.run import train_work
        from d3ray.platform.planning.plan import plan

        begin = time.perf_counter()
        said = plan(train_work(self.config("planned", seeds, n_steps)), seconds=PLAN_SECONDS)
        at_once = {"per_second": said.updates_per_second * said.at_once, "at_once": said.at_once}
        return {**at_once, "seconds": said.wall_seconds, "took": time.perf_counter() - begin}


def together(points: Sequence[Points]) -> float:
    """Updates a second of all, in the time in which all train; where there is no such time, over all that any takes."""
    begin, end = max(times[0] for times, _ in points), min(times[-1] for times, _ in points)
    if end > begin:
        return sum(float(np.diff(np.interp([begin, end], times, steps))[0]) for times, steps in points) / (end - begin)
    begin, end = min(times[0] for times, _ in points), max(times[-1] for times, _ in points)
    return sum(float(steps[-1] - steps[0]) for _, steps in points) / (end - begin)


# ---- the process


class Process:
    """Answers what is asked, of the contender that `begin` names."""

    contender: Contender

    def begin(self, work: Mapping[str, Any], device: str, data: Mapping[str, str], rows: int) -> dict[str, float]:
        """`who` of the work is a class here, or MODULE.CLASS of a file beside this one."""
        module, _, name = work["who"].rpartition(".")
        self.contender = getattr(importlib.import_module(module), name)() if module else {"Ours": Ours, "Theirs": Theirs}[name]()
        return self.contender.begin(work, device, data, rows)

    def asked(self, name: str) -> Any:
        """A method of what is there once it was begun."""

        def ask(**arguments: Any) -> Any:
            return getattr(self.contender, name)(**arguments)

        return ask


if __name__ == "__main__":
    process, trials = Process(), Trials()
    tasks = {name: process.asked(name) for name in ("warm", "measure", "trace", "memory")}
    about_trials = {"start_ray": trials.start_ray, "train": trials.train, "plan": trials.plan}
    serve({"product": product, "begin": process.begin, **tasks, **about_trials})
