"""The greedy policy of a fit."""

from __future__ import annotations

from typing import Any

from ..learning.fit import Fit
from ..learning.setup import sampling
from ..ports import memories, noises
from ..wants import Stretches
from .context import ContextModule, ContextPolicy
from .policy import Policy, PolicyModule
from .ported import PortedModule, PortedPolicy


def policy_module(fit: Fit) -> PolicyModule:
    """Raw observations to raw actions, scalers inside.

    Of a policy that has a memory or draws, see `PortedModule`; of one that looks back at the latest steps, `ContextModule`.
    Raises ConfigError of a stack, which has several.
    """
    fit.nets()
    scaling, wants = fit.scaling, fit.sources.wants
    arguments = (fit.algorithm, fit.learner.acting, scaling.affines(), fit.dtype, fit.coefficients, fit.ports, scaling.bounds)
    if memories(fit.ports) or noises(fit.ports, exploring=False):
        return PortedModule(*arguments, spec=fit.spec)
    if isinstance(wants, Stretches):
        return ContextModule(*arguments, spec=fit.spec, context=wants.length, return_scale=scaling.return_scale)
    return PolicyModule(*arguments)


def policy(fit: Fit) -> Policy:
    """Give the greedy policy over NumPy arrays; of what judges another's policy that one."""
    if fit.judged is None:
        fit.judged = fit.algorithm.acts_by(fit.spec)  # once: it may be read from a file
    if fit.judged is not None:
        return fit.judged
    module = policy_module(fit)
    if isinstance(module, ContextModule):
        return ContextPolicy(module, fit.device, fit.config.target_returns or ())
    chosen = sampling(fit.config)
    frames: Any = {"frames": chosen.frames, "frame_padding": chosen.frame_padding}
    if isinstance(module, PortedModule):
        return PortedPolicy(module, fit.device, fit.seeds[0], **frames)
    return Policy(module, fit.spec, fit.device, **frames)
