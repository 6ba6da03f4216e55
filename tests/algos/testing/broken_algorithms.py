"""Algorithms that are broken on purpose, each in one way, and the check of the contract that has to say so."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import AfterValidator, Field

from d3ray.algos import testing
from d3ray.algos.actor_critic.td3 import TD3
from d3ray.algos.definition import loss, transitions
from d3ray.algos.imitation.bc import BC
from d3ray.algos.imitation.discrete_bc import DiscreteBC, DiscreteBCConfig
from d3ray.algos.networks.q_functions import Values, picked, td_loss
from d3ray.algos.sequence.decision_transformer import DecisionTransformer
from d3ray.algos.values.dqn import DQN, DQNConfig
from d3ray.data.config import setting
from d3ray.data.errors import DataError
from d3ray.data.masks import mask_of
from d3ray.data.random import fold, normal

BROKEN: list[tuple[type[Any], Any, str]] = []  # class, check, what its message says


def caught_by(check: Any, message: str) -> Any:
    def note(cls: type[Any]) -> type[Any]:
        BROKEN.append((cls, check, message))
        return cls

    return note


def goal_of(nets: Any, batch: Any, discount: Any) -> Any:
    """DQN's, with any discount and without torch.no_grad."""
    following = nets.target.critic(batch.next_observation)
    return batch.reward + discount * picked(following, following.mean(0).argmax(-1)).amin(0)


# ---- what a loss trains


@caught_by(testing.check_moves_only_what_is_named, r"minimise\(actor_loss, 'policy'\) also moves 'live/critic/")
class MovesAnotherNetwork(TD3):
    @loss("sample")
    def actor_loss(self, nets, batch, h):
        with torch.no_grad():
            for tensor in self.fit_.learner.live["critic"].values():
                tensor.mul_(0.999)
        return super().actor_loss(nets, batch, h)


@caught_by(testing.check_moves_only_what_is_named, r"something besides the verbs moves 'target/critic/")
class MovesItsTargetByHand(DQN):
    def critic(self, learner, batch):
        super().critic(learner, batch)
        for name, tensor in learner.target["critic"].items():
            tensor.lerp_(learner.live["critic"][name].detach(), 0.1)


@caught_by(testing.check_targets_get_no_gradient, r"critic_loss has a gradient at the target network 'critic'")
class TrainsThroughItsTarget(DQN):
    @loss("member sample")
    def critic_loss(self, nets, batch, h):
        return td_loss(nets.critic, batch, goal_of(nets, batch, batch.discount))


@caught_by(testing.check_targets_get_no_gradient, r"critic_loss has a gradient through what it expects of the next observation")
class TrainsItsGoal(DQN):
    @loss("member sample")
    def critic_loss(self, nets, batch, h):
        goal = batch.reward + batch.discount * nets.critic(batch.next_observation).mean(0).amax(-1)
        return td_loss(nets.critic, batch, goal)


@caught_by(testing.check_learns_something, "the network 'policy' never moves")
class NeverTrainsItsPolicy(TD3):
    def schedule(self, step):
        return ("critic",)


@caught_by(testing.check_losses_are_per_sample, r"values of the shape \(64, 1\) for a batch of 64")
class KeepsAnAxisTooMany(DQN):
    @loss("member sample")
    def critic_loss(self, nets, batch, h):
        values, metrics = super().critic_loss(nets, batch, h)
        return values.sum(0)[:, None], metrics


@caught_by(testing.check_losses_repeat, "critic_loss gives something else for the same networks and batch")
class CountsItsCalls(DQN):
    calls = 0

    @loss("member sample")
    def critic_loss(self, nets, batch, h):
        self.calls += 1
        values, metrics = super().critic_loss(nets, batch, h)
        return values * (1 + 0.01 * self.calls), metrics


# ---- discounts


class WithGoal(DQN):
    """DQN with another discount."""

    def discount(self, batch: Any, h: Any) -> Any:
        raise NotImplementedError

    @loss("member sample")
    def critic_loss(self, nets, batch, h):
        with torch.no_grad():
            goal = goal_of(nets, batch, self.discount(batch, h))
        return td_loss(nets.critic, batch, goal)


@caught_by(testing.check_bootstraps_by_the_batchs_discount, "no loss depends on batch.discount")
class IgnoresTdSteps(WithGoal):
    """γ where γⁿ is meant."""

    def discount(self, batch, h):
        return h.gamma * (batch.discount > 0)


@caught_by(testing.check_bootstraps_by_the_batchs_discount, r"critic_loss discounts by h\.gamma")
class DiscountsTwice(WithGoal):
    def discount(self, batch, h):
        return h.gamma * batch.discount


@caught_by(testing.check_terminated_steps_look_no_further, "depends on the next observation of steps that terminated")
class BootstrapsBeyondTheEnd(WithGoal):
    def discount(self, batch, h):
        return batch.discount.clamp(min=0.9)


@caught_by(testing.check_terminated_steps_look_no_further, "though it wants nothing that follows")
class BootstrapsAllTheSame(DQN):
    def wants(self, config):
        return transitions(config, following=False)


@caught_by(testing.check_truncation_is_unseen, "where episodes were truncated")
class StopsAtTruncations(WithGoal):
    def wants(self, config):
        return transitions(config, extra=("truncated",))

    def discount(self, batch, h):
        return batch.discount * (1 - batch.extra["truncated"].to(batch.discount.dtype))


# ---- programs of tensors


@caught_by(testing.check_update_reads_no_value, r"reads a value.*broken_algorithms\.py:\d+")
class ReadsAValue(DQN):
    @loss("member sample")
    def critic_loss(self, nets, batch, h):
        values, metrics = super().critic_loss(nets, batch, h)
        return values * (1.0 if values.detach().mean().item() > -1 else 2.0), metrics


@caught_by(testing.check_update_reads_no_value, r"a value is read, as \.item\(\)|makes a tensor on the CPU")
class ReadsAValueOnTheCPU(DQN):
    @loss("member sample")
    def critic_loss(self, nets, batch, h):
        values, metrics = super().critic_loss(nets, batch, h)
        return values * torch.tensor(0.5).exp().item(), metrics


@caught_by(testing.check_update_reads_no_value, "makes a tensor on the CPU")
class MakesATensorOnTheCPU(DQN):
    @loss("member sample")
    def critic_loss(self, nets, batch, h):
        values, metrics = super().critic_loss(nets, batch, h)
        return values * torch.ones(()), metrics


@caught_by(testing.check_update_reads_no_value, r"reads a value.*broken_algorithms\.py:\d+")
class BranchesInAKind(DQN):
    def critic(self, learner, batch):
        if batch.reward.sum() > -1e9:
            super().critic(learner, batch)


@caught_by(testing.check_update_reads_no_value, "makes a shape from one")
class ShapesByValues(DQN):
    @loss("member sample")
    def critic_loss(self, nets, batch, h):
        values, metrics = super().critic_loss(nets, batch, h)
        return values.sum(0)[batch.reward > -1e9], metrics


# ---- randomness


@caught_by(testing.check_randomness_has_addresses, "draws from the generator of torch")
class DrawsFromTorch(DQN):
    @loss("member sample")
    def critic_loss(self, nets, batch, h):
        values, metrics = super().critic_loss(nets, batch, h)
        return values * (1 + 0.1 * torch.rand_like(values)), metrics


@caught_by(testing.check_randomness_has_addresses, "draws from the generator of NumPy")
class DrawsFromNumPy(DQN):
    @loss("member sample")
    def critic_loss(self, nets, batch, h):
        values, metrics = super().critic_loss(nets, batch, h)
        return values * np.random.uniform(0.9, 1.1), metrics


@caught_by(testing.check_randomness_has_addresses, "draws from the generator of Python")
class DrawsFromPythonWhereItActs(DQN):
    def sample_action(self, x):
        random.random()
        return super().sample_action(x)


# ---- stacks


@caught_by(testing.check_one_update_in_float32, "in float32 row 0's critic_loss's value is not its single run's")
class SharesOneDrawAmongSeeds(DQN):
    @loss("member sample")
    def critic_loss(self, nets, batch, h):
        values, metrics = super().critic_loss(nets, batch, h)
        key = fold(torch.zeros_like(batch.index[0]), self.seed)
        return values * (1 + 0.1 * normal(key, batch.reward.shape, values.dtype)), metrics


@caught_by(testing.check_one_update_in_float32, "in float32 row 0's critic_loss's value is not its single run's")
class MixesSeeds(DQN):
    def critic(self, learner, batch):
        super().critic(learner, replace(batch, reward=batch.reward - batch.reward.mean()))


class WithBetaConfig(DQNConfig):
    beta: float = setting(1.0, "weight of the loss", gt=0)


@caught_by(testing.check_row_equals_single_run, r"They differ in 'beta': read it as h\.beta, not from the config")
class ReadsACoefficientFromTheConfig(DQN):
    Config: ClassVar = WithBetaConfig

    @loss("member sample")
    def critic_loss(self, nets, batch, h):
        values, metrics = super().critic_loss(nets, batch, h)
        return values * self.config_.beta, metrics


@caught_by(testing.check_resumes_bit_for_bit, r"a resumed run differs by .* Look for state outside learner\.state")
class KeepsStateOfItsOwn(DQN):
    """Rewards are counted from the mean of the first batch that it sees."""

    anchor: Any = None

    def critic(self, learner, batch):
        if self.anchor is None:
            self.anchor = batch.reward.mean(-1, keepdim=True)
        super().critic(learner, replace(batch, reward=batch.reward - self.anchor))


# ---- acting


@caught_by(testing.check_predictions, "depends on the other observations of the batch")
class ActsByTheBatch(BC):
    def act(self, nets, observation, state, noise):
        return super().act(nets, observation - observation.mean(0), state, noise)


@caught_by(testing.check_actions_stay_in_their_space, r"predict leaves the space of actions: it gives .* and actions lie in -1\.9")
class LeavesTheSpace(BC):
    def act(self, nets, observation, state, noise):
        return 1.5 * super().act(nets, observation, state, noise)[0], state


@caught_by(testing.check_actions_stay_in_their_space, "predict leaves the space of actions: it gives .* and actions lie in 0 to 2")
class CountsActionsFromOne(DiscreteBC):
    def act(self, nets, observation, state, noise):
        return super().act(nets, observation, state, noise)[0] + 1, state


@caught_by(testing.check_row_acts_by_its_own_coefficients, "predict_value of a row .*: it is in 'gamma'")
class ValuesByItsStacksCoefficients(DQN):
    def networks(self, spec, config):
        self.built_with = config.gamma
        return super().networks(spec, config)

    def values(self, nets, observation, action):
        return super().values(nets, observation, action) / (1.1 - self.built_with)


@caught_by(testing.check_scalers_act_once, "with the observation_scaler .* losses scale nothing")
class ScalesInItsLoss(DQN):
    @loss("member sample")
    def critic_loss(self, nets, batch, h):
        if scaler := self.config_.observation_scaler:
            scale, shift = (torch.as_tensor(part, dtype=batch.reward.dtype) for part in scaler.numbers())
            batch = replace(batch, observation=batch.observation * scale + shift)
        return super().critic_loss(nets, batch, h)


@caught_by(testing.check_scalers_act_once, "predict scales otherwise than the observation_scaler does")
class ScalesWhereItActs(BC):
    def act(self, nets, observation, state, noise):
        if scaler := self.config_.observation_scaler:
            scale, shift = (torch.as_tensor(part, dtype=observation.dtype) for part in scaler.numbers())
            observation = observation * scale + shift
        return super().act(nets, observation, state, noise)


@caught_by(testing.check_export_acts_as_predict, "its exported policy acts otherwise than predict")
class ScalesOutsideItsPolicy(BC):
    """Its predictions are clipped, what it exports is not."""

    def predict(self, x):
        return super().predict(x).clip(-0.01, 0.01)


@caught_by(testing.check_export_acts_as_predict, "The TorchScript module does not act as the policy did")
class BranchesWhereItActs(BC):
    """A trace takes it for a constant."""

    def act(self, nets, observation, state, noise):
        return super().act(nets, observation, state, noise)[0] * (0.9 if len(observation) > 8 else 1.0), state


@caught_by(testing.check_padding_is_unseen, "imitation_loss depends on padding")
class LearnsFromPadding(DecisionTransformer):
    @loss("sample")
    def imitation_loss(self, nets, batch, h):
        return (nets.policy(batch.seen) - batch.action).square().mean((-1, -2)), {}


@caught_by(testing.check_padding_is_unseen, "act depends on padding")
class ActsOnPadding(DecisionTransformer):
    def act(self, nets, observation, state, noise):
        return super().act(nets, replace(observation, mask=torch.ones_like(observation.mask)), state, noise)


# ---- settings


class UndescribedConfig(DiscreteBCConfig):
    kappa: float = Field(1.0)


@caught_by(testing.check_settings_are_described, "the setting 'kappa' has no description")
class DescribesNothing(DiscreteBC):
    Config: ClassVar = UndescribedConfig


class DoublingConfig(DiscreteBCConfig):
    beta: Annotated[float, AfterValidator(lambda beta: 2 * beta)] = setting(1.0, "weight of the loss")


@caught_by(testing.check_settings_round_trip, "its config does not come back from JSON as it went")
class ComesBackOtherwise(DiscreteBC):
    Config: ClassVar = DoublingConfig


@caught_by(testing.check_refuses_other_actions, "trains on actions of the wrong kind")
class TakesAnyActions(DQN):
    def fitter(self, *arguments, **named):
        try:
            yield from super().fitter(*arguments, **named)
        except DataError:
            return


class WithKappaConfig(DiscreteBCConfig):
    kappa: float = setting(1.0, "what nothing reads", gt=0)


@caught_by(testing.check_settings_matter, r"'kappa' changes nothing \(tried 0\.5, 2\.0,")
class HasASettingWithoutEffect(DiscreteBC):
    Config: ClassVar = WithKappaConfig


@caught_by(testing.check_settings_matter, "'batch_size' is listed in `exemptions`, and changes what is learned")
class ExemptsWhatMatters(DiscreteBC):
    exemptions: ClassVar = {"batch_size": "it is said to"}


# ---- legal actions


@caught_by(testing.check_chooses_legal_actions, r"predict gives action \d where \[\d\] are legal")
class ActsWithoutTheMask(DQN):
    def greedy(self, nets, observation):
        return nets.critic.expected(nets.critic.features(observation)).mean(0).argmax(-1)


@caught_by(testing.check_illegal_actions_are_unseen, "critic_loss depends on the value or the logit of an action that is illegal")
class ValuesIllegalActions(DQN):
    def following(self, nets, batch, h):
        features = nets.target.critic.features(batch.next_observation)
        return Values(nets.target.critic.expected(features).amax(-1))


@caught_by(testing.check_all_legal_is_no_mask, "is trained to something else by a mask with which all actions are legal")
class CountsLegalActions(DQN):
    @loss("member sample")
    def critic_loss(self, nets, batch, h):
        values, metrics = super().critic_loss(nets, batch, h)
        return values * (1.0 if mask_of(batch.observation) is None else 2.0), metrics
