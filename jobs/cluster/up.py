"""`d3ray up [FILE]`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ...data.errors import ConfigError
from ..command.base import JobConfig, Result, option
from ..command.console import note

if TYPE_CHECKING:
    from ...platform.cluster.launcher import ClusterFile


class UpConfig(JobConfig):
    """Which cluster."""

    file: str = option("ray_cluster.yaml", "of Ray's cluster launcher", operand=True)
    yes: bool = option(False, "start without asking; machines cost money")
    dry_run: bool = option(
        False, "look whether the file, this machine and an AWS account are ready, say what it costs, and start nothing"
    )
    rehearse: bool = option(False, "play its node types on this machine, with a training whose node is killed; two minutes")
    cpu: float = option(1, "CPUs of the trial of a rehearsal", gt=0)
    gpu: float = option(0.25, "GPUs of the trial of a rehearsal, which are numbers there: it trains on the CPU", ge=0)
    nodes: dict[str, dict[str, float]] = option(
        dict, "in a rehearsal, what nodes have whose cloud cannot be asked, as {gpu_worker: {CPU: 8, GPU: 1}}"
    )

    def after_interrupt(self, command: str) -> str:
        return f"Interrupted; machines may be running. To end them: d3ray down {self.file}"


def run(config: UpConfig) -> Result:
    """Checks, asks, and runs `ray up`. Raises ConfigError: something is wrong or missing; StorageError: it failed."""
    from ...platform.cluster.launcher import ClusterFile

    if config.rehearse:
        return _rehearsed(config)
    file = ClusterFile.read(config.file)
    if lacking := file.lacking():
        raise ConfigError(f"{config.file} is fine, but cannot be used yet. {' '.join(lacking)}")
    about = f"{file.provider}: a head and at most {file.prepared['max_workers']} workers"
    for line in _looked_at(file):
        note(line)
    if config.dry_run:
        return Result(made=f"{config.file} is ready to be used ({about}).", look={"start it": f"d3ray up {config.file}"})
    agreed(f"Start {about}?", config.yes)
    note(f"Starting {about}.")
    file.launch("up")
    look = {
        "reach it": f"ray dashboard {config.file} (leave it open)",
        "use it": "d3ray submit address=http://127.0.0.1:8265 train …",
        "end it": f"d3ray down {config.file}",
    }
    return Result(made=f"The cluster of {config.file} is up.", look=look)


def _looked_at(file: ClusterFile) -> list[str]:
    """Return what it will make, cost and risk, where known. Raises ConfigError: the cloud's account is not ready."""
    if file.provider != "aws":
        return []
    from ...platform.cluster.aws_account import bill, lacking_in_account, risks

    if lacking := lacking_in_account(file.prepared):
        raise ConfigError(f"{file.path} is fine, but cannot be used yet. {' '.join(lacking)}")
    return [*bill(file.prepared), *risks(file.prepared)]


def _rehearsed(config: UpConfig) -> Result:
    from ...platform.api.rehearsing import rehearse

    rehearse(config.file, cpu=config.cpu, gpu=config.gpu, nodes=config.nodes, told=note)
    return Result(
        made=f"The rehearsal of {config.file} went well. No machine, image, driver or right was tried.",
        look={"look whether this machine is ready": f"d3ray up {config.file} dry_run=true"},
    )


def agreed(question: str, yes: bool) -> None:
    """Asks, where somebody can answer. Raises ConfigError: nobody can, without --yes; KeyboardInterrupt: the answer is no."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(f"{question} There is no terminal to answer at; say --yes.")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise KeyboardInterrupt("Nothing was done.")
