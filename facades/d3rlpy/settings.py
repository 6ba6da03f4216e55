"""d3rlpy 2.8.1's settings as ours: `{"type": "td3_plus_bc", "params": {…}}` as a name and keyword arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from d3ray.algos.registry import algorithm_class
from d3ray.data.config import left_out
from d3ray.data.errors import DataError

Params = Mapping[str, Any]
Settings = dict[str, Any]
Reader = Callable[[str, Any], Settings]


def settings_of(config: Mapping[str, Any]) -> tuple[str, Settings]:
    """The name of an algorithm here, and its settings; what is not told has d3rlpy's default, as the preset `d3rlpy` has it.

    Raises:
        DataError: it is another algorithm, or has a setting or a part that there is not here.
    """
    kind, params = config["type"], dict(config["params"])
    if kind not in ALGORITHMS:
        raise DataError(f"it holds the algorithm {kind!r}; those that are read are {', '.join(map(repr, ALGORITHMS))}.")
    return ALGORITHMS[kind], settings_for(kind, ALGORITHMS[kind], params)


def settings_for(kind: str, name: str, params: Params) -> Settings:
    """The settings of our algorithm `name`, which d3rlpy calls `kind`. Raises DataError as `settings_of`."""
    cls = algorithm_class(name)
    known, own = set(cls.Config.model_fields), _OWN.get(name, {})
    without_effect = left_out(cls.Config)
    settings: Settings = {**cls.presets["d3rlpy"].settings, **_FIXED.get(name, {})}
    for key, value in params.items():
        reader = own.get(key) or _reader(key)
        found = {key: value} if reader is None else reader(key, value)
        found = {setting: value for setting, value in found.items() if setting not in without_effect}
        if unknown := sorted(found.keys() - known):
            raise DataError(f"it has a setting {key!r} of {kind!r} that is not known ({unknown[0]}).")
        settings |= found
    return _together(name, settings, params)


def _reader(key: str) -> Reader | None:
    """What reads a setting that several algorithms have; None: it is the same here."""
    if key in _SHARED:
        return _SHARED[key]
    for theirs, ours, part in (("optim_factory", "optimizer", _optimizer), ("encoder_factory", "encoder", _encoder)):
        if key.endswith(theirs):
            return _named(part, key.removesuffix(theirs) + ours)
    return None


def _together(name: str, settings: Settings, params: Mapping[str, Any]) -> Settings:
    """What follows from several settings at once."""
    if "update_actor_interval" in settings:  # a schedule counts the optimiser's own steps there, and gradient steps here
        optimizer = settings.get("actor_optimizer")
        if isinstance(optimizer, dict) and optimizer.get("schedule"):
            times, schedule = settings["update_actor_interval"], optimizer["schedule"]
            optimizer["schedule"] = {n: v * times if n in ("duration", "warm_up") else v for n, v in schedule.items()}
    match name:
        case "CQL" | "CalQL":
            if params.get("soft_q_backup") or params.get("max_q_backup"):
                settings["backup"] = "soft" if params.get("soft_q_backup") else "max"
            if params.get("alpha_learning_rate") == 0:  # α stays what it is at first
                settings |= {"learn_alpha": False, "conservative_weight": settings.get("conservative_weight", 5.0)}
                settings["conservative_weight"] *= settings.pop("initial_alpha", 1.0)
                settings.pop("alpha_learning_rate", None)
        case "CRR" if params.get("target_update_type", "hard") == "hard":
            settings |= {"tau": 1.0, "target_update_interval": params.get("target_update_interval", 100)}
        case "DiscreteBCQ" if not params.get("share_encoder", True):
            settings["imitator_encoder"] = settings.get("encoder", "default")
        case "DecisionTransformer" | "DiscreteDecisionTransformer":
            _transformer(name, settings, params)
        case _:
            pass
    return settings


def _transformer(name: str, settings: Settings, params: Mapping[str, Any]) -> None:
    """Layers and heads as one setting, and a schedule that counts steps of the data as one of gradient steps."""
    cls = algorithm_class(name)
    settings["transformer"] = settings["transformer"].model_copy(
        update={ours: params[theirs] for theirs, ours in _LAYERS.items() if theirs in params}
    )
    encoding = params.get("position_encoding_type", "simple" if name == "DecisionTransformer" else "global")
    if name == "DecisionTransformer" and encoding != "simple":
        raise DataError(f"it has a position encoding {encoding!r} of 'decision_transformer', which there is not here.")
    if name == "DiscreteDecisionTransformer":
        settings["position_encoding"] = encoding
        steps = settings.get("batch_size", cls.Config.model_fields["batch_size"].default) * settings.get("context", 20)
        optimizer = settings.get("optimizer", "adam")
        optimizer = dict(optimizer) if isinstance(optimizer, dict) else {"name": optimizer}
        warm_up, final = params.get("warmup_tokens", 10_240) / steps, params.get("final_tokens", 30_000_000) / steps
        schedule = {"name": "cosine", "warm_up": math.ceil(warm_up), "duration": max(1, round(final - warm_up)), "final": 0.1}
        settings["optimizer"] = {**optimizer, "schedule": schedule}


# ---- readers: (key, value) there to settings here


def _left_out(key: str, value: Any) -> Settings:
    """How the program is run, which is none of the algorithm's business."""
    return {}


def _named(reader: Callable[[str, Params], Any], name: str) -> Reader:
    """A part with a type and params, as the setting `name`."""
    return lambda key, value: {name: reader(value["type"], value["params"])}


def _encoder(kind: str, params: Params) -> Settings:
    rest = dict(params)
    batch, layer = rest.pop("use_batch_norm", False), rest.pop("use_layer_norm", False)
    if kind not in ("vector", "pixel", "default") or (batch and layer):
        raise DataError(
            f"it has an encoder {kind!r}{' with two normalisations' if batch and layer else ''}, which there is not here."
        )
    last = "none" if rest.pop("exclude_last_activation", False) else rest.pop("last_activation", None)
    rest.pop("last_activation", None)
    return {
        "name": kind,
        **{key: rest.pop(key) for key in ("hidden_units", "filters", "feature_size", "dropout_rate") if key in rest},
        "activation": _activation(rest.pop("activation")),
        "last_activation": None if last is None else _activation(last),
        "normalization": "batch" if batch else "layer" if layer else None,
        **_nothing_left(f"the encoder {kind!r}", rest),
    }


def _activation(name: str) -> str:
    known = {"relu": "relu", "tanh": "tanh", "gelu": "gelu", "swish": "silu", "none": "none"}
    if name not in known:
        raise DataError(f"it has an activation {name!r}, which there is not here.")
    return known[name]


def _optimizer(kind: str, params: Params) -> Settings:
    rest = dict(params)
    shared = {"max_grad_norm": rest.pop("clip_grad_norm") or None, "schedule": _schedule(**rest.pop("lr_scheduler_factory"))}
    if rest.pop("dampening", 0) != 0:
        raise DataError("it has an optimizer 'sgd' with dampening, which there is not here.")
    names = {"adam": "adam", "adam_w": "adamw", "rmsprop": "rmsprop", "sgd": "sgd"}
    if kind not in names:
        raise DataError(f"it has an optimizer {kind!r}, which there is not here.")
    return {"name": names[kind], **shared, **{"epsilon" if key == "eps" else key: value for key, value in rest.items()}}


def _schedule(type: str, params: Params) -> Settings | None:
    match type:
        case "none":
            return None
        case "warmup":
            return {"name": "warm_up", "warm_up": params["warmup_steps"]}
        case "cosine_annealing" if not params["eta_min"]:
            return {"name": "cosine", "duration": params["T_max"]}
        case _:
            raise DataError(f"it has a schedule {type!r} with {dict(params)}, which there is not here.")


def _q_function(key: str, value: Any) -> Settings:
    params = dict(value["params"])
    return {"share_encoder": params.pop("share_encoder"), "q_function": {"name": value["type"], **params}}


def _judging_q_function(key: str, value: Any) -> Settings:
    """As `_q_function`; what judges estimates a mean, which d3rlpy's Huber loss of discrete actions does not."""
    found = _q_function(key, value)
    if found["q_function"]["name"] == "mean":
        found["q_function"]["loss"] = "squared"
    return found


def observation_scaler(kind: str, params: Params) -> Settings | None:
    match kind:
        case "none":
            return None
        case "standard":
            return {"name": kind, "mean": params["mean"], "std": params["std"], "epsilon": params["eps"]}
        case "min_max" | "pixel":
            return {"name": kind, **params}
        case _:
            raise DataError(f"it has an observation scaler {kind!r}, which is not read.")


def action_scaler(kind: str, params: Params) -> Settings | None:
    return None if kind == "none" else {"name": kind, **params}


def reward_scaler(kind: str, params: Params) -> Settings | None:
    rest = dict(params)
    multiplier = rest.pop("multiplier", 1.0)
    match kind:
        case "none":
            return None
        case "shift" if multiplier == 1:
            return {"name": "constant_shift", "shift": rest["shift"]}
        case "shift":
            raise DataError("it has a reward scaler 'shift' that also multiplies, which there is not here.")
        case "standard":
            return {"name": kind, "mean": rest["mean"], "std": rest["std"], "epsilon": rest["eps"], "multiplier": multiplier}
        case "clip" if None in (rest["low"], rest["high"]):
            raise DataError("it has a reward scaler 'clip' with one bound, which there is not here.")
        case "return":
            return {"name": "return_based", **rest, "multiplier": multiplier}
        case _:
            return {"name": kind, **rest, "multiplier": multiplier}


def _temperature_rate(key: str, value: float) -> Settings:
    """A rate of 0 fixes the temperature there."""
    return {key: value} if value > 0 else {"learn_temperature": False}


def _nothing_left(what: str, rest: Params) -> Settings:
    if rest:
        raise DataError(f"it has a setting {min(rest)!r} of {what} that is not known.")
    return {}


def _same_as(*names: str) -> Reader:
    return lambda key, value: dict.fromkeys(names, value)


def _only(wanted: Any) -> Reader:
    """Of a setting that has one value here."""

    def read(key: str, value: Any) -> Settings:
        if value != wanted:
            raise DataError(f"it has {key}={value!r}, and here it is always {wanted!r}.")
        return {}

    return read


_SHARED: Mapping[str, Reader] = {
    "observation_scaler": _named(observation_scaler, "observation_scaler"),
    "action_scaler": lambda key, value: {} if value["type"] == "none" else {key: action_scaler(value["type"], value["params"])},
    "reward_scaler": _named(reward_scaler, "reward_scaler"),
    "compile_graph": _left_out,
    "q_func_factory": _q_function,
    "temp_learning_rate": _temperature_rate,
}
_LAYERS = {
    "num_heads": "n_heads",
    "num_layers": "n_layers",
    "attn_dropout": "attention_dropout",
    "resid_dropout": "residual_dropout",
    "embed_dropout": "embedding_dropout",
    "activation_type": "activation",
}
_OF_TRANSFORMERS: Mapping[str, Reader] = {
    **dict.fromkeys((*_LAYERS, "position_encoding_type", "warmup_tokens", "final_tokens"), _left_out),  # `_transformer` reads them
    "context_size": _same_as("context"),
    "embed_activation_type": _same_as("embed_activation"),
}
_OF_CQL: Mapping[str, Reader] = dict.fromkeys(("soft_q_backup", "max_q_backup"), _left_out)  # `_together` reads them
_OF_FQE: Mapping[str, Reader] = {"q_func_factory": _judging_q_function}
_OWN: Mapping[str, Mapping[str, Reader]] = {
    "FQE": _OF_FQE,
    "DiscreteFQE": _OF_FQE,
    "IQL": {  # one optimiser steps critics and value function there
        "critic_learning_rate": _same_as("critic_learning_rate", "value_learning_rate"),
        "critic_optim_factory": lambda key, value: {
            name: _optimizer(value["type"], value["params"]) for name in ("critic_optimizer", "value_optimizer")
        },
    },
    "BCQ": {"n_action_samples": _same_as("n_action_samples", "n_target_samples")},
    "BEAR": {
        "vae_kl_weight": _same_as("beta"),
        "actor_learning_rate": _same_as("actor_learning_rate", "alpha_learning_rate"),  # d3rlpy steps α at the actor's rate
        "alpha_learning_rate": _left_out,
    },
    "CQL": _OF_CQL,
    "CalQL": _OF_CQL,
    "CRR": {
        "update_actor_interval": _only(1),
        **dict.fromkeys(("target_update_type", "target_update_interval"), _left_out),  # `_together` reads them
    },
    "DiscreteBCQ": {"share_encoder": _left_out},  # `_together` reads it
    "DecisionTransformer": _OF_TRANSFORMERS,
    "DiscreteDecisionTransformer": _OF_TRANSFORMERS,
}
ALGORITHMS: Mapping[str, str] = {
    "awac": "AWAC",
    "bc": "BC",
    "bcq": "BCQ",
    "bear": "BEAR",
    "cal_ql": "CalQL",
    "cql": "CQL",
    "crr": "CRR",
    "ddpg": "DDPG",
    "decision_transformer": "DecisionTransformer",
    "discrete_bc": "DiscreteBC",
    "discrete_bcq": "DiscreteBCQ",
    "discrete_cql": "DiscreteCQL",
    "discrete_decision_transformer": "DiscreteDecisionTransformer",
    "discrete_sac": "DiscreteSAC",
    "double_dqn": "DoubleDQN",
    "dqn": "DQN",
    "iql": "IQL",
    "nfq": "NFQ",
    "plas": "PLAS",
    "plas_with_perturbation": "PLASWithPerturbation",
    "rebrac": "ReBRAC",
    "sac": "SAC",
    "td3": "TD3",
    "td3_plus_bc": "TD3PlusBC",
}
"""What d3rlpy 2.8.1 calls algorithms, and our names of them."""
_FIXED: dict[str, Settings] = {  # what is no setting there: d3rlpy 2.8.1, models/builders.py and algos/qlearning/
    "SAC": {"log_std_bounds": (-20.0, 2.0)},
    "CQL": {"log_std_bounds": (-20.0, 2.0)},
    "CalQL": {"log_std_bounds": (-20.0, 2.0)},
    "BEAR": {"log_std_bounds": (-20.0, 2.0)},
    "CRR": {"log_std_bounds": (-20.0, 2.0)},
    "AWAC": {"log_std_bounds": (-6.0, 0.0)},
    "IQL": {"log_std_bounds": (-5.0, 2.0), "state_dependent_std": False},
    "BC": {"log_std_bounds": (-4.0, 15.0)},
    **{name: {"decoder_output": "linear"} for name in ("BCQ", "PLAS", "PLASWithPerturbation")},
}
