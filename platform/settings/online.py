"""The settings that trials have which learn while they act, beside those of their algorithm."""

from __future__ import annotations

from typing import Any, ClassVar

from ...algos.online.settings import Alternation
from ...data.config import setting


class OnlineConfig(Alternation):
    """How a trial acts while it learns. `online: 8` is short for eight environments."""

    shorthand: ClassVar[str] = "n_envs"

    n_envs: int = setting(1, "environments stepped side by side", gt=0)
    capacity: int = setting(1_000_000, "rows of the replay buffer: transitions, and one more for each episode", gt=0)
    explorer: dict[str, Any] | str | None = setting(
        None, "what replaces or disturbs the policy's actions: a name, or {name: …, …}; null: by the algorithm"
    )

    pretrain: int = setting(0, "gradient steps on the dataset alone before it acts, part of n_steps", since="0.2", ge=0)
    actors: int | None = setting(
        None, "processes of Ray in which the environments are stepped while the trial learns, each with its share of them", gt=0
    )
    actor_steps: int = setting(32, "steps of each environment that actors make between two looks at the weights", gt=0)

    def arguments(self) -> dict[str, Any]:
        """Return an online run's arguments: defaults are left out, for some algorithms do not take them."""
        told = {name: value for name, value in self if value != type(self).model_fields[name].default}
        return {name: value for name, value in told.items() if name != "pretrain" and not name.startswith("actor")}
