"""RLlib's algorithms as d3ray's: `rllib/PPO`, `rllib/CQL`, … in the same configs, trials and reports. See docs/rllib.md."""
