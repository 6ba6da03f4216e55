"""Records the `.d3` files of d3rlpy that tests read: `python benchmarks/record_d3.py tests/algos/d3_files`.

To be run by a Python that has d3rlpy 2.8.1 and no need of d3ray. Each algorithm takes a few steps on random numbers and is saved,
with small networks so that a file has some ten kilobytes; `golden.json` holds what it answers at a few observations.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import d3rlpy
import numpy as np
from d3rlpy.algos import BCConfig, CQLConfig, IQLConfig, SACConfig, TD3PlusBCConfig
from d3rlpy.models.encoders import PixelEncoderFactory, VectorEncoderFactory
from d3rlpy.models.q_functions import QRQFunctionFactory
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
    "cql": CQLConfig(**encoders(CQLConfig)),  # is not read
}


def data(rng: np.random.Generator, shape: tuple[int, ...]) -> dict[str, Any]:
    """Columns of N random transitions in episodes of 16."""
    pixels = len(shape) == 3
    return {
        "observations": rng.integers(0, 256, (N, *shape)).astype(np.uint8) if pixels else rng.normal(size=(N, *shape)).astype("f4"),
        "actions": rng.uniform(-1, 1, (N, 2)).astype("f4"),
        "rewards": rng.normal(size=N).astype("f4"),
        "terminals": (np.arange(N) % 16 == 15).astype("f4"),
    }


def numbers(array: Any) -> Any:
    """As JSON has them, to the last digit of a float32."""
    return np.asarray(array, np.float64).tolist()


def record(name: str, folder: Path) -> dict[str, Any]:
    """Trains and saves one, and says what it answers."""
    d3rlpy.seed(1)
    rng = np.random.default_rng(1)
    columns = data(rng, (2, 7, 7) if name.endswith("pixel") else (3,))
    dataset = d3rlpy.dataset.MDPDataset(**columns)
    algorithm = CASES[name].create()
    algorithm.fit(dataset, STEPS, STEPS, show_progress=False, logger_adapter=d3rlpy.logging.NoopAdapterFactory())
    algorithm.save(str(folder / f"{name}.d3"))
    seen, actions = columns["observations"][:4], columns["actions"][:4]
    golden = {"observations": numbers(seen), "actions": numbers(actions), "predict": numbers(algorithm.predict(seen))}
    if not name.startswith("bc"):
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


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    answers = {name: record(name, target) for name in CASES}
    (target / "golden.json").write_text(json.dumps(answers, indent=0) + "\n")
