"""d3rlpy 2.8.1 in the GPU table: whole calls of `fit`, eager and with its `compile_graph`."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from gpu_side import Contender, most_allocated, wait_for


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


class Theirs(Contender):
    """An algorithm and its data."""

    def build(self, work: Mapping[str, Any], device: str, data: Mapping[str, str], rows: int) -> None:
        stand_in_for_gym()
        import d3rlpy  # pyright: ignore[reportMissingImports]
        import d3rlpy_side as peer

        d3rlpy.seed(0)
        self.device, self.quiet = device, peer.QUIET
        settings = {**work["theirs"], "compile_graph": bool(work["compiled"])}
        if work["hidden"]:
            settings["hidden_units"] = work["hidden"]
        self.algorithm: Any = peer.make(work["algorithm"], settings, device)
        self.dataset = peer.open_dataset(data["theirs"])

    def run(self, n: int) -> None:
        self.algorithm.fit(self.dataset, n_steps=n, n_steps_per_epoch=n, **self.quiet)
        wait_for(self.device)

    def memory(self) -> float | None:
        return most_allocated(self.device)


if __name__ == "__main__":
    Theirs().offer()
