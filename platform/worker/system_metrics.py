"""How busy the machine is while a trial learns, under the names that MLflow's own page of system metrics knows.

    system/cpu_utilization_percentage          of all CPUs of the machine, mean since the last epoch
    system/system_memory_usage_megabytes       of the machine, at the end of the epoch; …_percentage beside it
    system/process_cpu_percentage              of the trial's process, mean since the last epoch: 100 is one CPU
    system/process_memory_megabytes            of the trial's process, resident, at the end of the epoch
    system/gpu_K_utilization_percentage        mean of samples since the last epoch, where nvidia-ml-py is installed
    system/gpu_K_memory_usage_megabytes        of the whole GPU, whoever uses it, at the end of the epoch; …_percentage beside it

K counts the GPUs that the trial sees. They come with the metrics of an epoch, so they go through the outbox like any.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import psutil
import torch

_MEGA = 2**20
_SECONDS = 2.0  # between samples of what the driver only tells of the present moment


class SystemMetrics:
    """Measures since it was made, or last asked; `utilisation` of GPU `k` is in percent, None: what the driver says."""

    def __init__(self, utilisation: Callable[[int], float] | None = None, seconds: float = _SECONDS) -> None:
        self._process = psutil.Process()
        self._gpus = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
        self._samples: dict[int, list[float]] = {}
        self._lock, self._ended = threading.Lock(), threading.Event()
        psutil.cpu_percent()  # the first call begins the interval
        self._process.cpu_percent()
        self._utilisation = utilisation or (_utilisation if self._gpus and _asks_driver() else None)
        if self._utilisation is not None:
            self._seconds = seconds
            threading.Thread(target=self._sample, name="d3ray-system-metrics", daemon=True).start()

    def _sample(self) -> None:
        assert self._utilisation is not None
        while not self._ended.wait(self._seconds):
            for k in self._gpus or [0]:
                value = float(self._utilisation(k))
                with self._lock:
                    self._samples.setdefault(k, []).append(value)

    def __call__(self) -> dict[str, float]:
        memory = psutil.virtual_memory()
        found = {
            "system/cpu_utilization_percentage": psutil.cpu_percent(),
            "system/system_memory_usage_megabytes": memory.used / _MEGA,
            "system/system_memory_usage_percentage": memory.percent,
            "system/process_cpu_percentage": self._process.cpu_percent(),
            "system/process_memory_megabytes": self._process.memory_info().rss / _MEGA,
        }
        with self._lock:
            samples, self._samples = self._samples, {}
        found |= {f"system/gpu_{k}_utilization_percentage": sum(values) / len(values) for k, values in samples.items()}
        for k in self._gpus:
            free, total = torch.cuda.mem_get_info(k)
            found[f"system/gpu_{k}_memory_usage_megabytes"] = (total - free) / _MEGA
            found[f"system/gpu_{k}_memory_usage_percentage"] = 100 * (total - free) / total
        return found

    def close(self) -> None:
        self._ended.set()


def _utilisation(gpu: int) -> float:
    return torch.cuda.utilization(gpu)


def _asks_driver() -> bool:
    try:
        torch.cuda.utilization(0)
    except Exception:  # nvidia-ml-py is not installed, or this driver does not tell
        return False
    return True
