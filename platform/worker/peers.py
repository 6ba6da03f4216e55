"""The other processes of a trial that trains one model on several GPUs: actors of Ray with a GPU each, beside the trial's own.

Trial and peers are on one node: the trial's placement group has a bundle for each. The trial is rank 0. It alone writes, evaluates
and heeds what others decide; a peer holds the same model on the same data, and does the gradient steps that it is told to.

Ray Train's trainer would ask for a placement group of its own beside the trial's, so that two trials could each hold what the other
waits for. What it sets up within, `torch.distributed` among actors, is set up here.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from ...data.errors import D3rayError
from ...data.storage.claims import scratch_names
from ..settings.config import EvaluationConfig
from .trial_config import TrialConfig
from .trial_run import TrialRun


def begin_trial(config: TrialConfig) -> TrialRun:
    """A trial in this process, with its peers where it has several GPUs. Raises as `TrialRun`."""
    if config.n_processes == 1:
        return TrialRun(config)
    peers = RayPeers(config)
    try:
        peers.begin()
        return TrialRun(config, peers)
    except BaseException:
        peers.close()
        raise


class PeerDiedError(D3rayError, RuntimeError):
    """A peer's process died, and with it the trial's attempt."""


class RayPeers:
    """Ranks 1 to n - 1 of a trial; this process is rank 0."""

    def __init__(self, config: TrialConfig) -> None:
        import ray

        self._config, self._n = config, config.n_processes
        self._folder = Path(tempfile.mkdtemp(prefix=scratch_names("peers")))
        kind: Any = ray.remote(num_cpus=0, num_gpus=1, max_restarts=0, max_task_retries=0)(_Peer)  # CPUs are the group's
        self._peers = [kind.remote() for _ in range(self._n - 1)]
        self._failure: BaseException | None = None
        self._watching: threading.Thread | None = None

    def begin(self) -> None:
        """Joins a group with them, and has them set up the trial. Raises as `TrialRun`."""
        where = f"file://{self._folder / 'group'}"
        alone = self._config.model_copy(update={"folder": None, "system_metrics": False, "evaluation": _held_out(self._config)})
        self._ask("begin", [(where, rank, self._n, alone.model_dump(mode="json")) for rank in range(1, self._n)])
        try:
            _join(where, 0, self._n)
        except RuntimeError:
            self._settle()
            raise
        self._settle()

    def load(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        import ray

        state = ray.put((dict(tensors), dict(meta)))
        self._ask("load", [(state,)] * len(self._peers))
        self._settle()

    @contextmanager
    def training(self, step: int, n_steps: int) -> Generator[None]:
        """Has them train from a gradient step on, while what is within trains as many.

        Raises:
            PeerDiedError: one died.
            D3rayError, RuntimeError: what else one of them raised.
        """
        self._ask("train", [(step, n_steps)] * len(self._peers))
        try:
            yield
        except Exception:
            self._settle(30.0)
            raise
        self._settle()

    def close(self) -> None:
        import ray

        if ray.is_initialized():
            for peer in self._peers:
                ray.kill(peer, no_restart=True)
        if dist.is_initialized():
            dist.destroy_process_group()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ask(self, method: str, arguments: list[tuple[Any, ...]]) -> None:
        """Calls a method of each, and watches them: whoever waits for a peer that has failed would wait for ever."""
        asked = [getattr(peer, method).remote(*given) for peer, given in zip(self._peers, arguments, strict=True)]
        self._watching = threading.Thread(target=self._watch, args=(asked,), daemon=True)
        self._watching.start()

    def _watch(self, asked: list[Any]) -> None:
        import ray

        while asked:
            (first, *_), asked = ray.wait(asked, num_returns=1)
            try:
                ray.get(first)
            except Exception as error:
                self._failure = error
                for peer in self._peers:  # what they have open is closed, and who waits for it hears of it
                    ray.kill(peer, no_restart=True)
                if dist.is_initialized() and dist.get_backend() == "nccl":  # its kernels wait without looking
                    torch.distributed.distributed_c10d._abort_process_group()  # pyright: ignore[reportPrivateUsage]
                return

    def _settle(self, patience: float | None = None) -> None:
        """Waits until all have done what they were asked for, and raises what one of them raised."""
        from ray.exceptions import RayActorError, RayTaskError

        assert self._watching is not None
        self._watching.join(patience)
        match self._failure:
            case None:
                return
            case RayActorError():
                said = str(self._failure).strip().splitlines()[0].rstrip(".")
                raise PeerDiedError(f"one of the {self._n} processes that train the model died: {said}") from None
            case RayTaskError(cause=cause) if isinstance(cause, Exception):
                raise cause from None
            case error:
                raise error


class _Peer:
    """A rank from 1 on: a trial that writes nothing."""

    def begin(self, where: str, rank: int, n: int, config: Mapping[str, Any]) -> None:
        _join(where, rank, n)
        self._run = TrialRun(TrialConfig.checked(config, title="trial"))

    def load(self, state: tuple[Mapping[str, Tensor], Mapping[str, Any]]) -> None:
        self._run.subject.load_state(*state)

    def train(self, step: int, n_steps: int) -> None:
        self._run.follow(step, n_steps)


def _join(where: str, rank: int, n: int) -> None:
    """Joins the group that meets in a file. All are on one machine, so no interface but its own is listened on."""
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    if loopback is not None:
        for library in ("GLOO", "NCCL"):
            os.environ.setdefault(f"{library}_SOCKET_IFNAME", loopback)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", init_method=where, rank=rank, world_size=n)


def _held_out(config: TrialConfig) -> EvaluationConfig | None:
    """The part of the evaluation that decides what is trained on."""
    if config.evaluation is None or not config.evaluation.holdout:
        return None
    return config.evaluation.model_copy(update={"scorers": (), "return_threshold": None})
