"""A Slurm of this machine for tests: `sbatch`, `srun`, `scontrol` and `scancel`, its first argument, start real processes.

Nodes are names; all that runs on one has SLURMD_NODENAME in its environment. SLURM_STAND_IN names its folder.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

FOLDER = Path(os.environ["SLURM_STAND_IN"])


def sbatch(arguments: list[str]) -> int:
    """Runs a script in the background with what its #SBATCH lines and the options before it say, again where it was requeued."""
    options, script, rest = _split(arguments)
    lines = re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", Path(script).read_text(), re.MULTILINE)
    asked = {**dict(lines), **options}
    job = str(1 + len(list(FOLDER.glob("job-*"))))
    folder = FOLDER / f"job-{job}"
    folder.mkdir()
    (folder / "asked.json").write_text(json.dumps(asked))
    nodes = [f"node{k}" for k in range(1, int(asked["nodes"]) + 1)]
    environment = {
        **os.environ,
        "SLURM_JOB_ID": job,
        "SLURM_JOB_NODELIST": ",".join(nodes),
        "SLURM_JOB_NUM_NODES": str(len(nodes)),
        "SLURM_CPUS_PER_TASK": asked["cpus-per-task"],
        "SLURM_MEM_PER_NODE": str(1024 * int(asked["mem"].removesuffix("G"))),
        "SLURMD_NODENAME": nodes[0],
    }
    log = Path(asked["output"].replace("%x", asked["job-name"]).replace("%j", job)).absolute()
    print(f"Submitted batch job {job}", flush=True)
    if os.fork():
        return 0
    os.setsid()
    with log.open("ab") as out:
        for fd in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDONLY) if fd == 0 else out.fileno(), fd)
    restarts = 0
    while True:
        batch = subprocess.Popen(["bash", script, *rest], env={**environment, "SLURM_RESTART_COUNT": str(restarts)})
        (folder / "pid").write_text(str(batch.pid))
        status = batch.wait()
        if not (folder / "requeue").exists():
            break
        (folder / "requeue").unlink()
        restarts += 1
    (folder / "status").write_text(str(status))
    os._exit(0)


def srun(arguments: list[str]) -> int:
    """Runs a command once on each of so many nodes, and waits for all."""
    parser = argparse.ArgumentParser()
    for name in ("nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "wait", "kill-on-bad-exit"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--exclude", default="")
    for name in ("no-kill", "label", "overlap"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args(arguments)
    dead = {file.name for file in (FOLDER / "dead").glob("*")}
    names = [name for name in os.environ["SLURM_JOB_NODELIST"].split(",") if name not in asked.exclude.split(",")][: asked.nodes]
    if dead & {*names}:
        print(f"srun: error: {', '.join(dead)} does not answer", file=sys.stderr)
        return 1
    cpus = str(asked.cpus_per_task or 1)  # a step has one CPU unless it says otherwise, whatever the job has
    tasks = [
        subprocess.Popen(
            asked.command, env={**os.environ, "SLURMD_NODENAME": name, "SLURM_CPUS_PER_TASK": cpus}, start_new_session=True
        )
        for name in names
    ]
    signal.signal(signal.SIGTERM, lambda *_: [os.killpg(task.pid, signal.SIGTERM) for task in tasks if task.poll() is None])
    left = list(tasks)
    while left:
        for task in [task for task in left if task.poll() is not None]:
            left.remove(task)
            if task.returncode and asked.kill_on_bad_exit != 0:
                for other in left:
                    other.kill()
        time.sleep(0.05)
    return max(abs(task.returncode) for task in tasks)


def scontrol(arguments: list[str]) -> int:
    """`scontrol requeue JOB`."""
    assert arguments[0] == "requeue"
    (FOLDER / f"job-{arguments[1]}" / "requeue").touch()
    return 0


def scancel(arguments: list[str]) -> int:
    """`scancel [--signal=NAME --batch] JOB`."""
    name = next((one.removeprefix("--signal=") for one in arguments if one.startswith("--signal=")), "TERM")
    os.kill(int((FOLDER / f"job-{arguments[-1]}" / "pid").read_text()), signal.Signals[f"SIG{name}"])
    return 0


def _split(arguments: list[str]) -> tuple[dict[str, str], str, list[str]]:
    """Options, the script, and its arguments."""
    first = next(k for k, one in enumerate(arguments) if not one.startswith("--"))
    options = dict(one.removeprefix("--").split("=", 1) for one in arguments[:first])
    return options, arguments[first], arguments[first + 1 :]


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit({"sbatch": sbatch, "srun": srun, "scontrol": scontrol, "scancel": scancel}[sys.argv[1]](sys.argv[2:]))
