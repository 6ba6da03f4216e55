"""What the contenders of `gpu.py` share: each is a process that begins one kind of work, warms it up, and is then asked in turn.

Run as a program it is the control loop: a fixed product on the device, timed beside every measurement.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from workers import serve


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
            work: fields of `gpu_rows.Work`, and `compiled`.
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

    def offer(self) -> None:
        """Answers what is asked."""
        serve({name: getattr(self, name) for name in ("begin", "warm", "measure", "trace", "memory")})


LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaMemsetAsync")


def traced(contender: Contender, n: int) -> dict[str, float]:
    """What the device did in `n` updates, and how often the host started something."""
    import torch
    from torch.autograd import DeviceType  # pyright: ignore[reportPrivateImportUsage]

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


class Control:
    """A fixed product."""

    def product(self, device: str) -> float:
        """Milliseconds that it takes."""
        import torch

        size, times = (4096, 10) if device.startswith("cuda") else (512, 20)
        factor = torch.full((size, size), 1 / size, device=device)
        wait_for(device)
        begin = time.perf_counter()
        value = factor
        for _ in range(times):
            value = value @ factor
        wait_for(device)
        return (time.perf_counter() - begin) * 1e3


if __name__ == "__main__":
    serve({"product": Control().product})
