"""What is learned: algorithms, the learner, networks, environments, policies, export."""
