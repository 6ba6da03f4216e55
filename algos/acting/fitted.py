"""The greedy policy of a fit."""

from __future__ import annotations

from ..learning.fit import Fit
from ..learning.setup import sampling
from ..wants import Stretches
from .context import ContextModule, ContextPolicy
from .policy import Policy, PolicyModule


def policy_module(fit: Fit) -> PolicyModule:
    """Raw observations to raw actions, scalers inside; of a policy that looks back, with its memory: see `ContextModule`.

    Raises ConfigError of a stack, which has several.
    """
    fit.nets()
    arguments = (fit.algorithm, fit.learner.modules, fit.scaling.affines(), fit.dtype, fit.coefficients, fit.scaling.bounds)
    wants = fit.sources.wants
    if not isinstance(wants, Stretches):
        return PolicyModule(*arguments)
    return ContextModule(*arguments, spec=fit.spec, context=wants.length, return_scale=fit.scaling.return_scale)


def policy(fit: Fit) -> Policy:
    """The same over NumPy arrays."""
    module = policy_module(fit)
    if isinstance(module, ContextModule):
        return ContextPolicy(module, fit.device, fit.config.target_returns or ())
    chosen = sampling(fit.config)
    return Policy(module, fit.spec, fit.device, frames=chosen.frames, frame_padding=chosen.frame_padding)
