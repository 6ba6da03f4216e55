"""Values of discrete actions, and the greedy policy over them."""
