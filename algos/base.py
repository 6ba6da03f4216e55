"""The estimator that users hold: every algorithm with what can be done with it.

An algorithm's file declares what `definition.Definition` asks for; all else is here and in the rooms that this hands on to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
import torch
from torch import Tensor, nn

from ..data.errors import ConfigError
from ..data.masks import bare
from ..data.spec import Spec
from .devices import AnyDevice
from .former import with_former_methods
from .learning.callbacks import Callback, Epoch, Evaluator
from .learning.estimator import Estimator
from .recurrence import remembers

if TYPE_CHECKING:
    from ..data.dataset import Dataset
    from ..data.replay import ReplayBuffer
    from .acting.policy import Policy
    from .acting.remembering import StatefulWrapper
    from .dynamics.model import Model

__all__ = ["Algorithm", "Callback", "Epoch", "Evaluator"]


@with_former_methods
class Algorithm(Estimator):
    """Base of every algorithm; its arguments are `Definition`'s, its attributes `Estimator`'s."""

    def guests(self, config: Any, row: int) -> Mapping[str, nn.Module]:
        model = self.given_model(config)
        return {} if model is None else {"dynamics": model}

    def given_model(self, config: Any) -> Model | None:
        """The model that the setting `dynamics` gives. Raises ConfigError for what is none, StorageError where it is not whole."""
        given = getattr(config, "dynamics", None)
        if given is None:
            return None
        from .export.model_packing import opened_model

        return opened_model(self.name, given)

    def completed(self, config: Any, dataset: Dataset) -> Any:
        """Refuses a model that is none, or of another environment, before any work."""
        if (model := self.given_model(config)) is not None:
            from .dynamics.generated import check_model

            check_model(model, dataset.spec, dataset.name, dataset.environment and dataset.environment.id)
        return super().completed(config, dataset)

    def completed_online(self, config: Any, spec: Spec, environment: str) -> Any:
        if (model := self.given_model(config)) is not None:
            import gymnasium

            from .dynamics.generated import check_model

            check_model(model, spec, environment, environment if environment in gymnasium.registry else None)
        return super().completed_online(config, spec, environment)

    # ---- in environments

    def fit_online(self, env: Any, buffer: ReplayBuffer | None = None, explorer: Any = None, **arguments: Any) -> Self:
        """Trains while acting in an environment; arguments as `fitter_online`'s."""
        for _ in self.fitter_online(env, buffer, explorer, **arguments):
            pass
        return self

    def fitter_online(
        self, env: Any, buffer: ReplayBuffer | None = None, explorer: Any = None, **arguments: Any
    ) -> Iterator[Epoch]:
        """Trains online, an epoch at a time; for arguments see `d3ray.algos.online.training.fitter_online`."""
        from .online.training import fitter_online

        return fitter_online(self, env, buffer, explorer, **arguments)

    def collect(
        self,
        env: Any,
        buffer: ReplayBuffer | None = None,
        explorer: Any = None,
        deterministic: bool = False,
        n_steps: int | None = None,
        **arguments: Any,
    ) -> Dataset | ReplayBuffer:
        """Plays this policy in an environment.

        Args:
            env: As for `d3ray.algos.environments.make.make`.
            buffer: Gets the transitions, and is returned; its unfinished episodes are ended. None: they become a dataset.
            explorer: As `fit_online`'s. None: a stochastic policy draws its actions, others take the greedy ones.
            deterministic: Whether a stochastic policy takes the greedy ones too.
            n_steps: Transitions; with a buffer each of n environments makes n_steps / n of them, rounded up.
            **arguments: `n_envs`, `seed`, `show_progress` (as `fitter`'s), and without a buffer `n_episodes` and `name`: see
                `d3ray.algos.environments.collect.collect`. With a buffer and no `seed`, it follows from the algorithm's, the
                gradient steps done and the rows that the buffer was ever given, so that a second call gives other experience;
                `record`, as `Rollout`'s, gives the buffer's extra columns.

        Returns:
            A dataset, or the buffer. Before training actions are uniform.
        """
        from .online.training import collect

        return collect(self, env, buffer, explorer, deterministic, n_steps, **arguments)

    def build_with_env(self, env: Any) -> Self:
        """Builds the networks for an environment: a gymnasium id, a config, a factory or an object, which is left open."""
        from .environments.make import is_given, make
        from .learning.fit import Fit

        self._warn_if_built()
        vector = make(env)
        try:
            name = getattr(getattr(vector.single, "spec", None), "id", None) or "the environment"
            self.fit_ = Fit.start_online(self, vector.spec, name)
        finally:
            if not is_given(env):
                vector.close()
        return self

    # ---- acting

    def policy(self) -> Policy:
        """The greedy policy: raw observations in, raw actions out."""
        from .acting.fitted import policy

        return policy(self.fitted)

    def policy_module(self) -> nn.Module:
        """The greedy policy as a module: raw observations [B, ...] to raw actions [B, A] or [B], scalers inside."""
        from .acting.fitted import policy_module

        return policy_module(self.fitted)

    def as_stateful_wrapper(self, target_return: float | None = None) -> StatefulWrapper:
        """A policy that remembers in one environment, as d3rlpy has it: `predict(x, reward)`, and `reset()` before every episode.

        Args:
            target_return: Of policies that act for a return, what is asked for, in the units of the environment's rewards; None:
                the first of `target_returns`.

        Raises:
            ConfigError: the policy remembers nothing; no return is known to ask for; or one is given, and it acts for none.
        """
        from .acting.remembering import Remembering, StatefulWrapper

        policy: Any = self.policy()
        if not isinstance(policy, Remembering):
            raise ConfigError(f"The policy of {self.name} remembers nothing, so there is nothing to wrap: predict is enough.")
        return StatefulWrapper(policy if target_return is None else policy.asking(target_return))

    def predict(self, x: Any, action_mask: Any = None) -> np.ndarray:
        """Greedy actions at raw observations [B, ...]: floats [B, A] in the environment's units, or int64 [B].

        At a single observation, without the batch axis, it is a single action: [A], or an int64.

        Args:
            x: The observations; a mapping may have the mask as its key `action_mask`.
            action_mask: Bool [B, n], once fitted on data that have one: which actions are legal. None: all are.

        Raises:
            DataError: a shape is wrong, a number is not finite, no action is legal in a row, or the data had no mask.
        """
        return self.policy().predict(x, action_mask)

    def sample_action(self, x: Any, action_mask: Any = None) -> np.ndarray:
        """A draw from the policy at raw observations, another one at every call, also once it was saved and loaded.

        A deterministic policy's is `predict`, whose arguments it takes.
        """
        from .acting.inputs import as_batch, taken

        self._drawn = getattr(self, "_drawn", 0) + 1
        policy = self.policy()
        shown, single = as_batch(policy.spec, x, action_mask)
        action = taken(policy.spec, policy.draw(shown, step=self._drawn, seed=self.seed))
        return action[0] if single else action

    @overload
    def predict_value(self, x: Any, action: Any, with_std: Literal[False] = False) -> np.ndarray: ...

    @overload
    def predict_value(self, x: Any, action: Any, with_std: bool) -> np.ndarray | tuple[np.ndarray, np.ndarray]: ...

    def predict_value(self, x: Any, action: Any, with_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Q(s, a) at raw observations [B, ...] and raw actions, [B], in the units of scaled rewards: the mean over critics.

        `with_std` adds their standard deviation, [B], a measure of what the data leave open: 0 for a critic alone, and more telling
        of larger ensembles with `bootstrap`.

        At a single observation and a single action it is one number.

        Raises:
            ConfigError: the algorithm learns no values, or has a recurrent encoder, whose values depend on what came before.
            DataError: a shape is wrong or a number is not finite.
        """
        from .acting.inputs import as_batch, raw_actions, raw_inputs
        from .acting.plain import plain_array
        from .acting.policy import module_input

        fit = self.fitted
        if remembers(fit.config):
            raise ConfigError(
                f"{self.name} values an action by what came before too, so one observation is not enough: losses and explorers "
                "that weigh values know it."
            )
        shown, single = as_batch(fit.spec, x)
        inputs = {name: torch.as_tensor(rows) for name, rows in raw_inputs(fit.spec, shown).items()}
        raw = raw_actions(
            fit.spec.action, plain_array(action, "Actions")[None] if single else action, len(next(iter(inputs.values())))
        )
        with torch.no_grad():
            values = self.values(fit.nets(), fit.scaling.observation(bare(module_input(fit.spec, inputs))), fit.scaling.action(raw))
        at: Any = 0 if single else slice(None)
        mean = values.mean(0).cpu().numpy()[at]
        return (mean, values.std(0, correction=0).cpu().numpy()[at]) if with_std else mean

    # ---- keeping

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, meta = super().state()
        drawn = getattr(self, "_drawn", 0)
        return tensors, {**meta, "drawn": drawn} if drawn else meta

    def load_state(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Self:
        self._drawn = int(meta.get("drawn", 0))
        return super().load_state(tensors, meta)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes everything that training goes on from: a folder that `d3ray.load` opens.

        Raises:
            ConfigError: the path has the ending of a file; or something stands there, and `overwrite` does not say to replace it.
            StorageError: it cannot be written, or what stands there is not what `save` writes.
        """
        from .saving.saving import save

        save(self, path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, device: AnyDevice = None) -> Self:
        """Loads what `save` wrote. Raises StorageError when it is not whole, ConfigError when it is another algorithm's."""
        from .saving.saving import load

        return cls._checked(load(path, device), path)

    def restore(self, path: str | Path) -> None:
        """Goes on from what `save` wrote: this object has its networks, optimisers, step and settings then.

        Raises ConfigError where that is another algorithm's, or has other networks than this one has already; else as `load`.
        """
        from .saving.saving import load_into

        load_into(self, path)

    @classmethod
    def from_params(cls, path: str | Path, device: AnyDevice = None) -> Self:
        """The algorithm of a `params.json`, as a `CSVLogger` leaves one: set up on `device`, with fresh networks.

        Raises StorageError where it is not what a fit writes, ConfigError when it is another algorithm's.
        """
        from .saving.saving import read_params

        return cls._checked(read_params(path, device), path)

    @classmethod
    def _checked(cls, algorithm: Algorithm, path: str | Path) -> Self:
        if not isinstance(algorithm, cls):
            raise ConfigError(f"{path} holds a {algorithm.name}, not a {cls.__name__}.")
        return algorithm

    def save_policy(self, path: str | Path, *, overwrite: bool = False) -> None:
        """The greedy policy for use without d3ray; the ending chooses.

        `.onnx`, `.pt` (TorchScript) and `.pt2` (torch.export) are one file each; without an ending, a policy package. What is there
        is replaced with `overwrite=True` alone; else a ConfigError says so.
        """
        from .export.export import save_policy

        save_policy(self, path, overwrite=overwrite)
