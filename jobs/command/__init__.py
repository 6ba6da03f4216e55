"""The `d3ray` command around its jobs: options, help, what a job is made of, how one is found and run, `--plan`."""
