"""A search of your own over d3ray's trials, with any of Tune's schedulers: python examples/own_scheduler.py DATASET [N_STEPS]."""

import sys

from ray import tune
from ray.tune.schedulers import ASHAScheduler

from d3ray.platform.trainable import trainable

n_steps = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
space = {
    "dataset": sys.argv[1],
    "algorithm": {"learning_rate": tune.loguniform(1e-5, 1e-2), "gamma": 0.99},
    "n_steps": n_steps,
    "n_steps_per_epoch": n_steps // 4,
    "seed": tune.grid_search([0, 1]),
    "evaluation": {"episodes": 5},
}
scheduler = ASHAScheduler(grace_period=1, max_t=4, reduction_factor=2)  # stops the worse half early
config = tune.TuneConfig(metric="evaluation/return", mode="max", num_samples=2, reuse_actors=True, scheduler=scheduler)
results = tune.Tuner(trainable("DQN"), param_space=space, tune_config=config).fit()
best = results.get_best_result()
print(f"{len(results)} trials; best return {best.metrics['evaluation/return']:.1f} with {best.config['algorithm']}")
