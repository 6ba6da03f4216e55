"""d3rlpy 2.8.1's settings as ours: `{"type": "td3_plus_bc", "params": {…}}` as a name and keyword arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...data.errors import DataError

Params = Mapping[str, Any]
Settings = dict[str, Any]


def settings_of(config: Mapping[str, Any]) -> tuple[str, Settings]:
    """The name of an algorithm here, and its settings.

    Raises:
        DataError: it is another algorithm, or has a setting or a part that there is not here.
    """
    kind, params = config["type"], dict(config["params"])
    if kind not in _ALGORITHMS:
        raise DataError(f"it holds the algorithm {kind!r}; those that are read are {', '.join(map(repr, _ALGORITHMS))}.")
    name, known = _ALGORITHMS[kind]
    if unknown := [key for key in params if key not in known]:
        raise DataError(f"it has a setting {unknown[0]!r} of {kind!r} that is not known.")
    settings: Settings = {}
    for key, value in params.items():
        settings |= known[key](key, value)
    if name == "TD3PlusBC":
        _stretch(settings, "actor_optimizer", settings["update_actor_interval"])
    return name, settings | _FIXED.get(name, {})


def _stretch(settings: Settings, key: str, interval: int) -> None:
    """A schedule counts the optimiser's own steps there, and gradient steps here."""
    schedule = settings[key]["schedule"]
    if schedule is not None:
        settings[key]["schedule"] = {n: v * interval if n in ("duration", "warm_up") else v for n, v in schedule.items()}


# ---- readers: (key, value) there to settings here


def _same(key: str, value: Any) -> Settings:
    return {key: value}


def _left_out(key: str, value: Any) -> Settings:
    """How the program is run, which is none of the algorithm's business."""
    return {}


def _named(reader: Callable[[str, Params], Any], name: str) -> Callable[[str, Any], Settings]:
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


def _observation_scaler(kind: str, params: Params) -> Settings | None:
    match kind:
        case "none":
            return None
        case "standard":
            return {"name": kind, "mean": params["mean"], "std": params["std"], "epsilon": params["eps"]}
        case "min_max" | "pixel":
            return {"name": kind, **params}
        case _:
            raise DataError(f"it has an observation scaler {kind!r}, which is not read.")


def _action_scaler(kind: str, params: Params) -> Settings | None:
    return None if kind == "none" else {"name": kind, **params}


def _reward_scaler(kind: str, params: Params) -> Settings | None:
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


_SHARED = {
    "batch_size": _same,
    "gamma": _same,
    "observation_scaler": _named(_observation_scaler, "observation_scaler"),
    "action_scaler": _named(_action_scaler, "action_scaler"),
    "reward_scaler": _named(_reward_scaler, "reward_scaler"),
    "compile_graph": _left_out,
}
_ACTOR_CRITIC = {
    **_SHARED,
    "actor_learning_rate": _same,
    "critic_learning_rate": _same,
    "actor_optim_factory": _named(_optimizer, "actor_optimizer"),
    "critic_optim_factory": _named(_optimizer, "critic_optimizer"),
    "actor_encoder_factory": _named(_encoder, "actor_encoder"),
    "critic_encoder_factory": _named(_encoder, "critic_encoder"),
    "q_func_factory": _q_function,
    "tau": _same,
    "n_critics": _same,
}
_ALGORITHMS: dict[str, tuple[str, dict[str, Callable[[str, Any], Settings]]]] = {
    "td3_plus_bc": (
        "TD3PlusBC",
        {
            **_ACTOR_CRITIC,
            **dict.fromkeys(("target_smoothing_sigma", "target_smoothing_clip", "alpha", "update_actor_interval"), _same),
        },
    ),
    "sac": (
        "SAC",
        {
            **_ACTOR_CRITIC,
            "temp_learning_rate": _temperature_rate,
            "temp_optim_factory": _named(_optimizer, "temp_optimizer"),
            "initial_temperature": _same,
        },
    ),
    "iql": (
        "IQL",
        {
            **_ACTOR_CRITIC,
            # one optimiser steps critics and value function there
            "critic_learning_rate": lambda key, value: {key: value, "value_learning_rate": value},
            "critic_optim_factory": lambda key, value: {
                name: _optimizer(value["type"], value["params"]) for name in ("critic_optimizer", "value_optimizer")
            },
            "value_encoder_factory": _named(_encoder, "value_encoder"),
            **dict.fromkeys(("expectile", "weight_temp", "max_weight"), _same),
        },
    ),
    "bc": (
        "BC",
        {
            **_SHARED,
            "learning_rate": _same,
            "policy_type": _same,
            "optim_factory": _named(_optimizer, "optimizer"),
            "encoder_factory": _named(_encoder, "encoder"),
        },
    ),
}
_FIXED: dict[str, Settings] = {  # what is no setting there: d3rlpy 2.8.1, models/builders.py, algos/qlearning/iql.py and bc.py
    "SAC": {"log_std_bounds": (-20.0, 2.0)},
    "IQL": {"log_std_bounds": (-5.0, 2.0), "state_dependent_std": False},
    "BC": {"log_std_bounds": (-4.0, 15.0)},
}
