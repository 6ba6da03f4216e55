"""What is submitted: one module per job, and the `d3ray` command."""
