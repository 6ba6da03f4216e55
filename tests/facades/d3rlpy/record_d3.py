"""Records the `.d3` files of d3rlpy that tests read: `python tests/facades/d3rlpy/record_d3.py tests/facades/d3rlpy/d3_files`.

To be run by a Python that has d3rlpy 2.8.1 and no need of d3ray. Each algorithm takes a few steps on random numbers and is saved,
with small networks so that a file has some ten kilobytes; `golden.json` holds what it answers at a few observations, and
`configs.json` what d3rlpy's configs are by default.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import d3rlpy
import numpy as np
from d3rlpy import algos
from d3rlpy.algos import BCConfig, IQLConfig, SACConfig, TD3PlusBCConfig
from d3rlpy.constants import PositionEncodingType
from d3rlpy.models.encoders import PixelEncoderFactory, VectorEncoderFactory
from d3rlpy.models.q_functions import IQNQFunctionFactory, QRQFunctionFactory
from d3rlpy.optimizers import AdamFactory, AdamWFactory, RMSpropFactory, SGDFactory
from d3rlpy.optimizers.lr_schedulers import CosineAnnealingLRFactory, WarmupSchedulerFactory
from d3rlpy.preprocessing import (
    ClipRewardScaler,
    MinMaxActionScaler,
    MinMaxObservationScaler,
    PixelObservationScaler,
    ReturnBasedRewardScaler,
    StandardObservationScaler,
)

N, STEPS = 64, 3
SMALL = VectorEncoderFactory([8, 7])


def encoders(config: type, **given: Any) -> dict[str, Any]:
    """The given encoders, and small ones for what has none."""
    names = [name for name in config.__dataclass_fields__ if name.endswith("encoder_factory")]
    return dict.fromkeys(names, SMALL) | given


CASES: dict[str, Any] = {
    "td3_plus_bc": TD3PlusBCConfig(**encoders(TD3PlusBCConfig), target_smoothing_sigma=0.0),
    "td3_plus_bc_rich": TD3PlusBCConfig(
        **encoders(
            TD3PlusBCConfig,
            actor_encoder_factory=VectorEncoderFactory([8, 8], "swish", use_batch_norm=True, dropout_rate=0.1),
            critic_encoder_factory=VectorEncoderFactory([8], "gelu", use_layer_norm=True, last_activation="tanh"),
        ),
        observation_scaler=StandardObservationScaler(),
        action_scaler=MinMaxActionScaler(),
        reward_scaler=ReturnBasedRewardScaler(multiplier=10.0),
        actor_optim_factory=AdamWFactory(weight_decay=1e-3, lr_scheduler_factory=CosineAnnealingLRFactory(T_max=50)),
        critic_optim_factory=RMSpropFactory(clip_grad_norm=5.0, lr_scheduler_factory=WarmupSchedulerFactory(20)),
        n_critics=3,
        gamma=0.9,
        alpha=1.5,
    ),
    "td3_plus_bc_pixel": TD3PlusBCConfig(
        **encoders(
            TD3PlusBCConfig,
            actor_encoder_factory=PixelEncoderFactory([[3, 3, 2]], feature_size=6),
            critic_encoder_factory=PixelEncoderFactory([[3, 3, 2]], feature_size=6, exclude_last_activation=True),
        ),
        observation_scaler=PixelObservationScaler(),
    ),
    "sac": SACConfig(**encoders(SACConfig), initial_temperature=0.5),
    "sac_rich": SACConfig(
        **encoders(SACConfig, actor_encoder_factory=VectorEncoderFactory([8], "tanh")),
        observation_scaler=MinMaxObservationScaler(),
        reward_scaler=ClipRewardScaler(-1.0, 1.0, multiplier=2.0),
        q_func_factory=QRQFunctionFactory(n_quantiles=5, share_encoder=True),
        actor_optim_factory=SGDFactory(momentum=0.9),
        temp_learning_rate=0.0,
    ),
    "iql": IQLConfig(**encoders(IQLConfig), actor_optim_factory=AdamFactory(amsgrad=True), expectile=0.8),
    "bc": BCConfig(**encoders(BCConfig)),
    "bc_stochastic": BCConfig(**encoders(BCConfig), policy_type="stochastic"),
    "discrete_bcq_apart": algos.DiscreteBCQConfig(
        **encoders(algos.DiscreteBCQConfig), share_encoder=False, n_critics=2, action_flexibility=0.9
    ),
    "dqn_iqn": algos.DQNConfig(
        **encoders(algos.DQNConfig), q_func_factory=IQNQFunctionFactory(n_quantiles=4, n_greedy_quantiles=4, embed_size=6)
    ),
    "crr_soft": algos.CRRConfig(**encoders(algos.CRRConfig), target_update_type="soft", weight_type="binary", advantage_type="max"),
    "cql_fixed": algos.CQLConfig(**encoders(algos.CQLConfig), alpha_learning_rate=0.0, soft_q_backup=True),
    "prdc": algos.PRDCConfig(**encoders(algos.PRDCConfig)),  # is not read
}
PLAIN = (
    "AWAC BCQ BEAR CQL CRR CalQL DDPG DQN DiscreteBC DiscreteBCQ DiscreteCQL DiscreteSAC DoubleDQN NFQ PLAS PLASWithPerturbation "
    "ReBRAC TD3"
)
THE_OTHERS = ("BC", "IQL", "SAC", "TD3PlusBC", "DecisionTransformer", "DiscreteDecisionTransformer")
for plain in PLAIN.split():
    config = getattr(algos, f"{plain}Config")
    more = {"warmup_steps": 1} if "warmup_steps" in config.__dataclass_fields__ else {}
    CASES[config.get_type()] = config(**encoders(config), **more)
for plain, encoding in (("DecisionTransformer", "SIMPLE"), ("DiscreteDecisionTransformer", "GLOBAL")):
    config = getattr(algos, f"{plain}Config")
    CASES[config.get_type()] = config(
        encoder_factory=VectorEncoderFactory([8]),
        context_size=3,
        max_timestep=20,
        num_heads=2,
        num_layers=2,
        position_encoding_type=PositionEncodingType[encoding],
    )


def data(rng: np.random.Generator, shape: tuple[int, ...], *, discrete: bool) -> dict[str, Any]:
    """Columns of N random transitions in episodes of 16."""
    pixels = len(shape) == 3
    drawn = rng.uniform(-1, 1, (N, 2)).astype("f4")
    return {
        "observations": rng.integers(0, 256, (N, *shape)).astype(np.uint8) if pixels else rng.normal(size=(N, *shape)).astype("f4"),
        "actions": rng.integers(0, 3, (N, 1)) if discrete else drawn,
        "rewards": rng.normal(size=N).astype("f4"),
        "terminals": (np.arange(N) % 16 == 15).astype("f4"),
    }


def numbers(array: Any) -> Any:
    """As JSON has them, to the last digit of a float32."""
    array = np.asarray(array)
    return array.tolist() if array.dtype.kind in "iu" else array.astype(np.float64).tolist()


def record(name: str, folder: Path) -> dict[str, Any]:
    """Trains and saves one, and says what it answers."""
    d3rlpy.seed(1)
    rng = np.random.default_rng(1)
    algorithm = CASES[name].create()
    discrete = algorithm.get_action_type() == d3rlpy.ActionSpace.DISCRETE
    columns = data(rng, (2, 7, 7) if name.endswith("pixel") else (3,), discrete=discrete)
    dataset = d3rlpy.dataset.MDPDataset(**columns)
    more = {"show_progress": False, "logger_adapter": d3rlpy.logging.NoopAdapterFactory()}
    algorithm.fit(dataset, n_steps=STEPS, n_steps_per_epoch=STEPS, **more)
    algorithm.save(str(folder / f"{name}.d3"))
    seen, actions = columns["observations"][:4], columns["actions"][:4]
    golden = {"observations": numbers(seen), "actions": numbers(actions)}
    if name.endswith("transformer"):
        return golden | {"rewards": [0.0, *numbers(columns["rewards"][:3])], "predict": numbers(unrolled(algorithm, columns))}
    if name not in ("bcq", "bear", "crr", "crr_soft"):  # these choose among draws
        golden["predict"] = numbers(algorithm.predict(seen))
    if "bc" not in (name, name.removesuffix("_stochastic"), name.removeprefix("discrete_")):
        golden["predict_value"] = numbers(algorithm.predict_value(seen, actions))
    if name in ("bc", "td3_plus_bc"):  # these draw no numbers in an update: what the next one makes of them
        algorithm.set_grad_step(2 * STEPS)  # an even one, at which TD3+BC's actor is updated too
        batch = dataset.sample_transition_batch(5)
        parts = ("observations", "actions", "rewards", "next_observations", "terminals")
        golden["batch"] = {part: numbers(getattr(batch, part)) for part in parts}
        algorithm.update(batch)
        golden["predict_after"] = numbers(algorithm.predict(seen))
        if name != "bc":
            golden["predict_value_after"] = numbers(algorithm.predict_value(seen, actions))
    return golden


def unrolled(algorithm: Any, columns: dict[str, Any]) -> list[Any]:
    """What a transformer does at four steps of an episode, when its target is a return of 2."""
    actor = algorithm.as_stateful_wrapper(2.0, d3rlpy.algos.IdentityTransformerActionSampler())
    if algorithm.get_action_type() == d3rlpy.ActionSpace.DISCRETE:
        actor = algorithm.as_stateful_wrapper(2.0, d3rlpy.algos.GreedyTransformerActionSampler())
    rewards = [0.0, *columns["rewards"][:3]]
    return [actor.predict(x, float(reward)) for x, reward in zip(columns["observations"][:4], rewards, strict=True)]


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    answers = {name: record(name, target) for name in CASES}
    configs = [getattr(algos, f"{name}Config")() for name in (*PLAIN.split(), *THE_OTHERS)] + [d3rlpy.ope.FQEConfig()]
    told = {one.get_type(): one.serialize_to_dict() for one in configs}
    plain = {name: {key: getattr(value, "value", value) for key, value in params.items()} for name, params in told.items()}
    (target / "configs.json").write_text(json.dumps(plain, indent=1) + "\n")
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items())
    (target / "golden.json").write_text(f"{{\n{lines}\n}}\n")
