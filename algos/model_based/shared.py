"""What algorithms share that learn from a model's rollouts: that there is one, and where their numbers come from."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from ...data.dataset import Dataset
from ...data.errors import ConfigError
from ..base import Algorithm
from ..dynamics.generated import Generated, no_model
from ..wants import Transitions

MOPO_CODE = "MOPO's code e5efe3e, examples/config/d4rl"
KIT = "OfflineRL-Kit, run_example"


class InAModel(Algorithm):
    """Algorithms that are nothing without `dynamics`."""

    exemptions: ClassVar = {"scalers_act_once": "a model is of raw numbers, and data that were scaled beforehand are others"}

    def completed(self, config: Any, dataset: Dataset) -> Any:
        """Refuses to begin without a model."""
        if config.dynamics is None:
            raise ConfigError(no_model(self.name))
        return super().completed(config, dataset)

    def wants(self, config: Any) -> Any:
        """Generated transitions always, so that training without a model is refused."""
        found = super().wants(config)
        return found if isinstance(found, Generated) else Generated(self, config, config.rollouts, cast("Transitions", found))
