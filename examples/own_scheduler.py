"""A search of your own over d3ray's trials: any of Tune's schedulers and searchers, here ASHA, which stops the worse half early.

python examples/own_scheduler.py DATASET [N_STEPS]
"""

import sys

from ray import tune
from ray.tune.schedulers import ASHAScheduler

from d3ray.platform.trainable import trainable

dataset, n_steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
results = tune.Tuner(
    trainable("DQN"),
    param_space={
        "dataset": dataset,
        "n_steps": n_steps,
        "n_steps_per_epoch": n_steps // 4,
        "seed": tune.grid_search([0, 1]),
        "algorithm": {"learning_rate": tune.loguniform(1e-5, 1e-2), "gamma": 0.99},
        "evaluation": {"episodes": 5},
    },
    tune_config=tune.TuneConfig(
        metric="evaluation/return",
        mode="max",
        num_samples=2,
        reuse_actors=True,
        scheduler=ASHAScheduler(grace_period=1, max_t=4, reduction_factor=2),
    ),
).fit()
best = results.get_best_result()
print(f"{len(results)} trials; best return {best.metrics['evaluation/return']:.1f} with {best.config['algorithm']}")
