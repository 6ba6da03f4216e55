"""d3ray in the GPU table: whole calls of `fit`, of one seed or of a stack, and an online run of what learns on-policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gpu_side import Contender, most_allocated, wait_for

from d3ray.algos.online.run import OnlineRun
from d3ray.algos.registry import algorithm_class, make_algorithm
from d3ray.algos.stack import Stack
from d3ray.data.dataset import Dataset

N_ENVS = 8
UPDATES = 20  # after which precisions are compared


class Ours(Contender):
    """An algorithm and its data."""

    subject: Any
    dataset: Dataset | None = None

    def begin(self, work: Mapping[str, Any], device: str, data: Mapping[str, str], rows: int) -> dict[str, float]:
        """As any; where products are not in float32, also how far its parameters are from those of float32 after a few updates."""
        found = super().begin(work, device, data, rows)
        return found | ({"gap": self.gap(work)} if work["plain"] else {})

    def gap(self, work: Mapping[str, Any]) -> float:
        """The norm of the difference of all parameters over that of the parameters, of one seed that is captured."""
        assert self.dataset is not None
        mine = algorithm_class(work["algorithm"])(seed=0, device=self.device, **work["ours"])
        ends = list[torch.Tensor]()
        for one in (mine, mine.unfitted().set_params(matmul_precision="float32")):
            state = one.fit(self.dataset, UPDATES).state()[0]
            ends.append(torch.cat([t.double().flatten() for name, t in state.items() if name.startswith("live/")]))
        other, plain = ends
        return float((other - plain).norm() / plain.norm())

    def build(self, work: Mapping[str, Any], device: str, data: Mapping[str, str], rows: int) -> None:
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


if __name__ == "__main__":
    Ours().offer()
