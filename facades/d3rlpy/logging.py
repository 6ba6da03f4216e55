"""d3rlpy's `logging`: where a fit's metrics go. A factory makes an adapter when training begins; users write their own as well."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from d3ray.data.errors import ConfigError
from d3ray.data.storage.files import storage_errors, write_atomically


class LoggingStrategy(enum.Enum):
    """When metrics are written: after epochs, or every so many gradient steps."""

    STEPS = "steps"
    EPOCH = "epoch"


class LoggerAdapter(Protocol):
    """Where the metrics of one fit go."""

    def write_params(self, params: Mapping[str, Any]) -> None:
        """Called once, before the first step."""
        ...

    def before_write_metric(self, epoch: int, step: int) -> None:
        """Called before the metrics of an epoch, or of a stretch of steps."""
        ...

    def write_metric(self, epoch: int, step: int, name: str, value: float) -> None:
        """Called for each metric."""
        ...

    def after_write_metric(self, epoch: int, step: int) -> None:
        """Called after them."""
        ...

    def save_model(self, epoch: int, algo: Any) -> None:
        """Called every `save_interval` epochs; d3rlpy hands the steps done on as `epoch`."""
        ...

    def close(self) -> None:
        """Called at the end."""
        ...


class LoggerAdapterFactory(Protocol):
    """What `logger_adapter` takes."""

    def create(self, algo: Any, experiment_name: str, n_steps_per_epoch: int) -> LoggerAdapter:
        """Called when training begins."""
        ...


class NoopAdapter:
    """Keeps nothing; base of the others."""

    def write_params(self, params: Mapping[str, Any]) -> None:
        """See `LoggerAdapter`, and so below."""

    def before_write_metric(self, epoch: int, step: int) -> None: ...

    def write_metric(self, epoch: int, step: int, name: str, value: float) -> None: ...

    def after_write_metric(self, epoch: int, step: int) -> None: ...

    def save_model(self, epoch: int, algo: Any) -> None: ...

    def close(self) -> None: ...


class NoopAdapterFactory:
    """Keeps nothing."""

    def create(self, algo: Any, experiment_name: str, n_steps_per_epoch: int) -> NoopAdapter:
        """See `LoggerAdapterFactory`, and so below."""
        return NoopAdapter()


class FileAdapter(NoopAdapter):
    """`params.json`, a file of `epoch,step,value` for each metric, and models that `load_learnable` opens."""

    def __init__(self, algo: Any, logdir: str | Path) -> None:
        self.logdir = Path(logdir)
        with storage_errors("written", self.logdir):
            self.logdir.mkdir(parents=True, exist_ok=True)

    def write_params(self, params: Mapping[str, Any]) -> None:
        with storage_errors("written", self.logdir):
            write_atomically(self.logdir / "params.json", json.dumps(params, indent=2).encode())

    def write_metric(self, epoch: int, step: int, name: str, value: float) -> None:
        file = self.logdir / f"{name.replace('/', '_')}.csv"
        with storage_errors("written", file), file.open("a", encoding="utf-8") as stream:
            stream.write(f"{epoch},{step},{value!r}\n")

    def save_model(self, epoch: int, algo: Any) -> None:
        algo.save(self.logdir / f"model_{epoch}.d3")


class FileAdapterFactory:
    """The default: a folder of files, `root_dir`/NAME_TIME."""

    def __init__(self, root_dir: str = "d3rlpy_logs") -> None:
        self.root_dir = root_dir

    def create(self, algo: Any, experiment_name: str, n_steps_per_epoch: int) -> FileAdapter:
        return FileAdapter(algo, Path(self.root_dir) / experiment_name)


class TensorboardAdapter(NoopAdapter):
    """Event files for `tensorboard --logdir`."""

    def __init__(self, logdir: str | Path) -> None:
        from tensorboardX import SummaryWriter

        self._writer, self._params = SummaryWriter(str(logdir)), dict[str, Any]()

    def write_params(self, params: Mapping[str, Any]) -> None:
        self._writer.add_text("params", json.dumps(params, indent=2))

    def write_metric(self, epoch: int, step: int, name: str, value: float) -> None:
        self._writer.add_scalar(f"metrics/{name}", value, step)

    def close(self) -> None:
        self._writer.close()


class TensorboardAdapterFactory:
    """TensorBoard, in `root_dir`/NAME_TIME."""

    def __init__(self, root_dir: str = "tensorboard_logs") -> None:
        self.root_dir = root_dir

    def create(self, algo: Any, experiment_name: str, n_steps_per_epoch: int) -> TensorboardAdapter:
        return TensorboardAdapter(Path(self.root_dir) / experiment_name)


class WanDBAdapter(NoopAdapter):
    """A run of Weights & Biases."""

    def __init__(self, wandb: Any, experiment_name: str, project: str | None) -> None:
        self._run = wandb.init(project=project, name=experiment_name)
        self._values = dict[str, float]()

    def write_params(self, params: Mapping[str, Any]) -> None:
        self._run.config.update(dict(params))

    def write_metric(self, epoch: int, step: int, name: str, value: float) -> None:
        self._values[name] = value

    def after_write_metric(self, epoch: int, step: int) -> None:
        self._run.log({"epoch": epoch, **self._values}, step=step)
        self._values = {}

    def close(self) -> None:
        self._run.finish()


class WanDBAdapterFactory:
    """Weights & Biases, where `wandb` is installed. Raises ConfigError where it is not."""

    def __init__(self, project: str | None = None) -> None:
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ConfigError("WanDBAdapterFactory needs wandb, which is not installed: pip install wandb.") from None
        self._wandb, self.project = wandb, project

    def create(self, algo: Any, experiment_name: str, n_steps_per_epoch: int) -> WanDBAdapter:
        return WanDBAdapter(self._wandb, experiment_name, self.project)


class CombineAdapter(NoopAdapter):
    """Several adapters, one after another."""

    def __init__(self, adapters: Sequence[LoggerAdapter]) -> None:
        self._adapters = adapters

    def write_params(self, params: Mapping[str, Any]) -> None:
        for one in self._adapters:
            one.write_params(params)

    def before_write_metric(self, epoch: int, step: int) -> None:
        for one in self._adapters:
            one.before_write_metric(epoch, step)

    def write_metric(self, epoch: int, step: int, name: str, value: float) -> None:
        for one in self._adapters:
            one.write_metric(epoch, step, name, value)

    def after_write_metric(self, epoch: int, step: int) -> None:
        for one in self._adapters:
            one.after_write_metric(epoch, step)

    def save_model(self, epoch: int, algo: Any) -> None:
        for one in self._adapters:
            one.save_model(epoch, algo)

    def close(self) -> None:
        for one in self._adapters:
            one.close()


class CombineAdapterFactory:
    """Several of them."""

    def __init__(self, adapter_factories: Sequence[LoggerAdapterFactory]) -> None:
        self._factories = adapter_factories

    def create(self, algo: Any, experiment_name: str, n_steps_per_epoch: int) -> CombineAdapter:
        return CombineAdapter([one.create(algo, experiment_name, n_steps_per_epoch) for one in self._factories])


class Metrics:
    """What a fit has seen since it last wrote: means, weighted by the steps that they are of."""

    def __init__(self, adapter: LoggerAdapter) -> None:
        self.adapter = adapter
        self._sums = dict[str, tuple[float, float]]()

    def add(self, values: Mapping[str, float], weight: float = 1.0) -> None:
        """More values."""
        for name, value in values.items():
            total, count = self._sums.get(name, (0.0, 0.0))
            self._sums[name] = total + weight * value, count + weight

    def commit(self, epoch: int, step: int) -> dict[str, float]:
        """Writes the means, and forgets."""
        means = {name: total / count for name, (total, count) in self._sums.items()}
        self.adapter.before_write_metric(epoch, step)
        for name, value in means.items():
            self.adapter.write_metric(epoch, step, name, value)
        self.adapter.after_write_metric(epoch, step)
        self._sums = {}
        return means


def begin(algo: Any, factory: LoggerAdapterFactory | None, name: str, n_steps_per_epoch: int, *, stamp: bool) -> Metrics:
    """The adapter of a fit, told the settings; a name that is taken has the time after it, as d3rlpy's has."""
    full = f"{name}_{datetime.now():%Y%m%d%H%M%S}" if stamp else name
    adapter = (factory or FileAdapterFactory()).create(algo, full, n_steps_per_epoch)
    adapter.write_params(algo.params())
    return Metrics(adapter)
