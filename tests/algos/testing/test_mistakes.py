"""What goes wrong while an algorithm is written is told in one sentence, with the nearest choice that there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from d3ray.algos import testing
from d3ray.algos.actor_critic.td3 import TD3
from d3ray.algos.base import Algorithm
from d3ray.algos.critics import ActorCritic, ActorCriticConfig
from d3ray.algos.definition import loss
from d3ray.algos.imitation.bc import BC
from d3ray.algos.in_sample import iql
from d3ray.algos.presets import TaskPresets
from d3ray.algos.stack import Stack
from d3ray.algos.values.dqn import DQN
from d3ray.data.errors import ConfigError

MISTAKES: list[tuple[type[Any], type[Exception], str]] = []  # class, error, the whole sentence


def told(error: type[Exception], sentence: str) -> Callable[[type[Any]], type[Any]]:
    def note(cls: type[Any]) -> type[Any]:
        MISTAKES.append((cls, error, sentence))
        return cls

    return note


@told(
    ConfigError,
    "MisspellsARate has no coefficient 'actor_rate' for the learning rate of 'policy'; did you mean 'actor_learning_rate'?",
)
class MisspellsARate(TD3):
    def networks(self, spec, config):
        networks = super().networks(spec, config)
        return {**networks, "policy": replace(networks["policy"], rate="actor_rate")}


@told(
    TypeError,
    "GivesAModule.networks gives 'policy' as a DeterministicPolicy: "
    "make it Network(module, 'learning_rate'), with the name of a setting.",
)
class GivesAModule(TD3):
    def networks(self, spec, config):
        networks = super().networks(spec, config)
        return {**networks, "policy": networks["policy"].module}


@told(ConfigError, "MisspellsANetwork has no network 'polcy'; did you mean 'policy'?")
class MisspellsANetwork(TD3):
    def actor(self, learner, batch):
        learner.minimise(self.actor_loss, "polcy", batch)


@told(ConfigError, "TracksNoTarget has no target network 'critics', which Network(…, target=True) makes; did you mean 'critic'?")
class TracksNoTarget(TD3):
    def targets(self, learner, batch):
        learner.track("critics")


@told(ConfigError, "CopiesNoTarget has no target network 'policy', which Network(…, target=True) makes; choose from 'critic'.")
class CopiesNoTarget(TD3):
    def networks(self, spec, config):
        networks = super().networks(spec, config)
        return {**networks, "policy": replace(networks["policy"], target=False)}

    def schedule(self, step):
        return ("targets",)

    def targets(self, learner, batch):
        learner.copy("policy")


@told(ConfigError, "TracksByNoRate has no coefficient 'taw' for the target of 'critic'; did you mean 'tau'?")
class TracksByNoRate(TD3):
    def targets(self, learner, batch):
        learner.track("critic", rate="taw")


SCHEDULE = "is a tuple of kinds of update, methods of (learner, batch), and"


@told(ConfigError, f"The schedule of MisspellsAKind {SCHEDULE} 'critc' is none; did you mean 'critic'?")
class MisspellsAKind(TD3):
    def schedule(self, step):
        return ("critc", "actor")


@told(ConfigError, f"The schedule of SchedulesAString {SCHEDULE} 'c' is none; choose from 'actor', 'critic', 'targets'.")
class SchedulesAString(TD3):
    def schedule(self, step):
        return "critic"


class Bare(ActorCritic):
    Config: ClassVar = ActorCriticConfig
    actions: ClassVar = "continuous"


@told(
    NotImplementedError,
    "HasNoNetworks has no method networks(spec, config), which gives {'policy': Network(module, 'learning_rate')}, "
    "an entry for each network.",
)
class HasNoNetworks(Bare):
    pass


@told(
    NotImplementedError,
    "HasNoSchedule has no method schedule(step), which gives the kinds of update that are due, as due(step, critic=1, actor=2).",
)
class HasNoSchedule(Bare):
    def networks(self, spec, config):
        return TD3.networks(self, spec, config)


@told(NotImplementedError, "HasNoLoss has no method critic_loss(nets, batch, h), which is marked @loss('member sample').")
class HasNoLoss(HasNoSchedule):
    critic_loss = loss("member sample")(ActorCritic.critic_loss)

    def schedule(self, step):
        return ("critic",)


@told(
    TypeError,
    "The loss GivesNoMetrics.critic_loss gives values and a dict of metrics, `return values, {}` "
    "where it has none, and gave a Tensor.",
)
class GivesNoMetrics(DQN):
    @loss("member sample")
    def critic_loss(self, nets, batch, h):
        return super().critic_loss(nets, batch, h)[0]


@told(
    TypeError,
    "The loss SaysAnotherRank.critic_loss is marked @loss('sample') for [B], and gave the shape (1, 16): "
    "mark it @loss('member sample') for [members, B] or @loss('sample step') for [B, T].",
)
class SaysAnotherRank(DQN):
    @loss("sample")
    def critic_loss(self, nets, batch, h):
        return super().critic_loss(nets, batch, h)


@told(
    TypeError,
    "The loss GivesANumber.critic_loss gives tensors as metrics, and gave the metric 'size' as a float.",
)
class GivesANumber(DQN):
    @loss("member sample")
    def critic_loss(self, nets, batch, h):
        values, metrics = super().critic_loss(nets, batch, h)
        return values, {**metrics, "size": 0.5}


@told(
    TypeError,
    "HandsOnNoState.act gives an action and what the memory becomes, `return action, state` where it has none, and gave a Tensor.",
)
class HandsOnNoState(BC):
    def act(self, nets, observation, state, noise):
        return super().act(nets, observation, state, noise)[0]


@told(AttributeError, 'HasNoActions has no \'actions\': write `actions: ClassVar = "continuous"` or `"discrete"` in the class.')
class HasNoActions(Algorithm):
    Config: ClassVar = ActorCriticConfig


@pytest.mark.parametrize(("wrong", "error", "sentence"), MISTAKES, ids=[cls.__name__ for cls, _, _ in MISTAKES])
@pytest.mark.parametrize("stacked", [False, True], ids=["one seed", "a stack"])
def test_a_mistake_is_told_where_it_is_made(wrong: type[Any], error: type[Exception], sentence: str, stacked: bool) -> None:
    data = testing.tiny_dataset(discrete=issubclass(wrong, DQN))

    def use() -> None:
        made = testing.maker(wrong)()
        trained = Stack(made, (0, 1)).fit(data, 4).seed(0) if stacked else made.fit(data, 4)
        trained.predict(data.columns["observation"][:3])

    with pytest.raises(error) as caught:
        use()
    assert str(caught.value) == sentence


def test_an_algorithm_without_a_config_says_so() -> None:
    class Nothing(Algorithm):
        pass

    for attempt in (Nothing, lambda: testing.check_algorithm(Nothing)):
        with pytest.raises(AttributeError, match=r"^Nothing has no 'Config': write `Config: ClassVar = MyConfig` in the class\.$"):
            attempt()


@pytest.mark.parametrize(
    ("axes", "said"),
    [("members", "'members'; did you mean 'member sample'"), (test_an_algorithm_without_a_config_says_so, "'test_an")],
)
def test_a_loss_is_marked_with_axes_that_there_are(axes: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"A loss is marked with what it gives, as @loss\('sample'\), and not with {said}"):
        loss(axes)


def test_presets_of_tasks_need_an_entry() -> None:
    class StrangeConfig(iql.IQLConfig):
        pass

    with pytest.raises(ConfigError, match=r"presets\.yaml has no presets of 'Strange'; choose from 'IQL', 'XQL'\.$"):
        list(TaskPresets(iql.__file__, StrangeConfig))


def test_a_rate_that_no_schedule_comes_to_says_where_to_look() -> None:
    class NeverTracks(TD3):
        def schedule(self, step):
            return ("critic", "actor")

    with pytest.raises(
        testing.ContractError, match=r"'tau' changes nothing .*: is `targets` in the schedule, and does a loss read"
    ):
        testing.check_settings_matter(testing.maker(NeverTracks), names=["tau"])


@pytest.mark.long
def test_settings_that_those_given_refuse_matter_without_them() -> None:
    """Recurrent encoders go with one step and no augmentation."""
    settings = {"actor_encoder": {"name": "gru", "units": 4}}
    testing.check_settings_matter(testing.maker(iql.IQL, **settings), names=["augmentation", "n_augmentations", "td_steps"])
