"""What is submitted: one module per job, in rooms, and the `d3ray` command."""
