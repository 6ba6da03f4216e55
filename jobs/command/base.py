"""What every command is made of: options, a config of them, and a result. CONTRIBUTING.md shows one in full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from ...data.config import Config
from ...data.errors import ConfigError
from ...platform.yaml_text import Key


def option(
    default: Any,
    description: str,
    *,
    operand: bool | Literal["several", "rest"] = False,
    example: Any = None,
    source: str = "",
    also: str = "",
    **limits: Any,
) -> Any:
    """A field of a command's config.

    Args:
        default: its default, `...` where the user must give a value; a callable is called for each config.
        description: one phrase, shown by `--help` and above the field in `--example`.
        operand: True: the value may stand alone on the command line, in the order of the fields. "several": so may more of them,
            all but those that operands before and after it need. "rest": everything that follows the operands before it, flags
            included, is this field's, a tuple of strings.
        example: what `--example` shows where there is no default.
        source: the paper, table or file that the default comes from.
        also: another name for it on the command line, by which users of another program know it: `--env-id` of d3rlpy.
        limits: pydantic's `gt`, `ge`, `lt`, `le`, `min_length`, ….
    """
    extra = {"operand": operand, "example": example, "source": source, "also": also}
    limits["json_schema_extra"] = {key: value for key, value in extra.items() if value not in (False, None, "")} or None
    if callable(default):
        return Field(default_factory=default, description=description, **limits)
    return Field(default, description=description, **limits)


class JobConfig(Config):
    """Base of every command's config."""

    def implied(self) -> Mapping[str, tuple[Any, str]]:
        """Values that follow from these, by dotted name, with where each comes from: `{"algorithm.alpha": (2.5, "preset paper")}`.

        `--print-config` shows them; what the user has given keeps the place where it was given.
        """
        return {}

    @classmethod
    def below(cls, given: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[Key, str]]:
        """Values that lie between the defaults and what is `given`, and the place of each key. Raises ConfigError."""
        return {}, {}

    def files(self) -> tuple[str, ...]:
        """Values of options that name files of this machine, which a submitted job needs."""
        return ()

    def after_interrupt(self, command: str) -> str:
        """Return the message to a user who pressed Ctrl-C in `command`."""
        return f"Interrupted; nothing half-made was kept. Again from the start: {command}"


class RestartableConfig(JobConfig):
    """The two flags of every command whose work can go on after it was stopped."""

    resume: bool = option(False, "go on with what an earlier run of this name in this storage left unfinished")
    replace: bool = option(False, "delete what an earlier run of this name in this storage left, and start again")

    def model_post_init(self, context: Any, /) -> None:
        if self.resume and self.replace:
            raise ConfigError("resume goes on with the earlier run and replace deletes it; say one of them.")

    def after_interrupt(self, command: str) -> str:
        resume = command if self.resume else f"{command.replace(' --replace', '')} --resume"
        return f"Interrupted; what reached a checkpoint is kept. To go on: {resume}"


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of a command and where to look; subclasses add what Python callers want to have."""

    made: str
    """One sentence: what there is now that was not there before."""
    look: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where to look, by what is found there: a path, a URI or a command."""
    failed: str = ""
    """What did not succeed, in one sentence; empty when all did. The command then exits with 1."""
    exit_status: int = 0
    """What the command exits with where neither 0 nor 1 says it."""

    def summary(self) -> list[str]:
        """The last lines of the command."""
        width = max(map(len, self.look), default=0)
        return [*filter(None, [self.made]), *(f"  {label + ':':<{width + 1}} {place}" for label, place in self.look.items())]
