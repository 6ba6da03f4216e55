"""What is known of experiments, trials, seeds, policies and datasets: plain data that every interface shows."""
