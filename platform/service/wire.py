"""What is asked and answered over HTTP. Observations, actions and masks are JSON lists; dict observations objects of them."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from ...data.config import Config, setting
from ...data.errors import DataError
from ...data.storage.json_text import parse_json

LONGEST = 256  # letters of an episode's key


class Asked(Config):
    """One observation to act on."""

    title: ClassVar[str] = "A request"

    observation: Any = setting(..., "as the environment shows it, raw: a number, lists, or an object of them")
    episode: str | None = Field(
        None,
        description="key of its episode; null: it is no step of one, and its id is its key",
        min_length=1,
        max_length=LONGEST,
    )
    step: int | None = setting(None, "steps done in the episode before; null: as `state` says, 0 without", ge=0)
    state: str | None = setting(None, "that of the episode's last reply, as it came")
    action_mask: tuple[bool, ...] | None = setting(None, "which discrete actions are legal; null: all")
    reward: float = setting(0.0, "what the last step was rewarded with, for policies that act for a return")
    executed: Any = setting(None, "what was done at the last step, where it was not what was answered")
    target_return: float | None = setting(None, "return that is asked for at step 0 of a policy that acts for one")
    version: str | None = setting(None, "the version that has to act; null: the one whose turn it is")

    @model_validator(mode="after")
    def _belongs_to_an_episode(self) -> Self:
        if self.episode is None and self.state is None and self.step:
            raise ValueError("step counts the steps of an episode: say which, as episode")
        return self


class Request(Config):
    """Many observations at once."""

    title: ClassVar[str] = "A request"

    decisions: tuple[Asked, ...] = Field(min_length=1)
    explain: bool = False


class Explained(Config):
    """Why an action may be what it is. What is not known is null."""

    value: float | None = setting(None, "Q(s, a) of what was done, where the package has values")
    propensity: float | None = setting(None, "probability of what was done; of continuous actions the density")
    nearest: float | None = setting(
        None, "distance to the nearest of the reference's observations, in standard deviations of each entry, root mean square"
    )


class Decision(Config):
    """What was decided, as one is answered."""

    id: str = setting(..., "of this decision, by which an outcome may name it")
    policy: str
    version: str
    role: str = setting(..., "champion, canary or fallback")
    episode: str
    step: int
    action: Any = setting(..., "raw: what to do")
    log_prob: float | None = setting(..., "log probability of it, or log density in units of raw actions; null: it has none")
    state: str | None = setting(..., "hand it in with the episode's next request; null where the request named no episode")
    restarted: bool = setting(False, "whether the version that the state was of is gone, so that its memory began anew")
    reason: str | None = setting(None, "why the fallback acted")
    explain: Explained | None = None


class Outcome(Config):
    """What came of a decision."""

    title: ClassVar[str] = "An outcome"

    decision: str | None = setting(None, "its id; null: episode and step say which it was")
    policy: str | None = setting(None, "whose, where several are served")
    episode: str | None = None
    step: int | None = setting(None, "of the decision", ge=0)
    reward: float
    terminated: bool = False
    truncated: bool = False
    cost: float | None = None
    observation: Any = setting(None, "the final one, where the episode ended")

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if self.decision is None and (self.episode is None or self.step is None):
            raise ValueError("it names neither a decision nor an episode and its step")
        return self


class Outcomes(Config):
    """Several of them."""

    title: ClassVar[str] = "A request"

    outcomes: tuple[Outcome, ...] = Field(min_length=1)


class Alarm(Config):
    """Whether the fallback is to act in place of the policies."""

    title: ClassVar[str] = "An alarm"

    on: bool
    why: str = Field("", max_length=500)
    policy: str | None = setting(None, "of which; null: all")


def read_request(body: bytes) -> tuple[Request, bool]:
    """Read what is asked, and whether it was several. Raises DataError or ConfigError."""
    found = _parsed(body)
    if "decisions" in found:
        return Request.checked(found), True
    explain = found.pop("explain", False)
    one = Asked.checked(found)  # by itself, so that a sentence names its parts as they were written
    return Request.checked({"decisions": [one], "explain": explain}), False


def read_outcomes(body: bytes) -> tuple[tuple[Outcome, ...], bool]:
    """Read outcomes, and whether they were several. Raises DataError or ConfigError."""
    found = _parsed(body)
    if "outcomes" in found:
        return Outcomes.checked(found).outcomes, True
    return (Outcome.checked(found),), False


def read_alarm(body: bytes) -> Alarm:
    """Read an alarm. Raises DataError or ConfigError."""
    return Alarm.checked(_parsed(body))


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        found = parse_json(body)
    except (ValueError, RecursionError) as error:
        raise DataError(f"The request is no JSON: {error}.") from None
    if not isinstance(found, dict):
        raise DataError(f"The request is a JSON {type(found).__name__}, and an object is expected.")
    return found
