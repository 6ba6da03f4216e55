"""Berkeley CS285's expert data, from its pickles to dataset folders.

    python examples/ingest_cs285.py expert_data_Hopper-v4.pkl datasets/hopper-expert Hopper-v4

Files: https://github.com/berkeleydeeprlcourse/homework_fall2023, hw1/cs285/expert_data. Two things in them are mended, and both are
said. What they call terminals is gymnasium's time limit of 1,000 steps, so episodes are truncated there. The expert's actions go
beyond [-1, 1] and the simulator clips them, so the clipped ones are what was done. From a shell it is one line:

    d3ray ingest expert_data_Hopper-v4.pkl datasets/hopper-expert environment=Hopper-v4 timeout_at=1000 actions=clip
"""

import sys

from d3ray.data.errors import D3rayError
from d3ray.platform.datasets.ingest import ingest

if len(sys.argv) != 4:
    sys.exit("usage: ingest_cs285.py PICKLE FOLDER ENVIRONMENT")
source, target, environment = sys.argv[1:]
try:
    done = ingest(source, target, environment=environment, options={"timeout_at": 1_000}, actions="clip")
except D3rayError as error:
    sys.exit(str(error))
print(*done.notes, *done.warnings, sep="\n")
print(f"{done.dataset}, mean return {done.dataset.statistics.return_.mean:.1f}.")
