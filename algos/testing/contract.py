"""The contract: all checks, in the order that a new algorithm meets them, cheapest first."""

from __future__ import annotations

from typing import Any

from ..base import Algorithm
from . import acting, legal, losses, runs, settings
from .errors import Check, ContractError, check_name
from .tiny import maker

CHECKS: tuple[Check, ...] = (
    settings.check_settings_are_described,
    settings.check_settings_round_trip,
    settings.check_refuses_other_actions,
    runs.check_learns_something,
    runs.check_randomness_has_addresses,
    losses.check_moves_only_what_is_named,
    losses.check_losses_repeat,
    losses.check_losses_are_per_sample,
    losses.check_targets_get_no_gradient,
    losses.check_bootstraps_by_the_batchs_discount,
    losses.check_terminated_steps_look_no_further,
    losses.check_padding_is_unseen,
    losses.check_truncation_is_unseen,
    losses.check_update_reads_no_value,
    runs.check_one_update_in_float32,
    runs.check_row_equals_single_run,
    runs.check_resumes_bit_for_bit,
    acting.check_predictions,
    acting.check_actions_stay_in_their_space,
    acting.check_row_acts_by_its_own_coefficients,
    acting.check_export_acts_as_predict,
    acting.check_scalers_act_once,
    legal.check_chooses_legal_actions,
    legal.check_illegal_actions_are_unseen,
    legal.check_all_legal_is_no_mask,
    settings.check_settings_matter,
)


def check_algorithm(algorithm: type[Algorithm], *, onnx: bool = True, **settings: Any) -> None:
    """Holds an algorithm, registered or not, to every check of the contract, on tiny data and networks. It takes seconds.

    Args:
        algorithm: The class.
        onnx: Whether its policy is exported as ONNX too, which takes a second or two of it.
        **settings: What it is made with: above all smaller networks or intervals than its defaults, where it has settings for
            them that are not called `…encoder` and `…_interval`, which are made small anyway.

    Raises:
        ContractError: the first check that fails; the message names it, the algorithm, and where to look.
    """
    known = {check_name(function) for function in CHECKS} | algorithm.Config.model_fields.keys()
    if unknown := sorted(algorithm.exemptions.keys() - known):
        raise ContractError(f"{algorithm.__name__}: exemptions has {unknown[0]!r}, which is no setting and no check.")
    for function in CHECKS:
        try:
            function(maker(algorithm, **settings), **({"onnx": onnx} if function is acting.check_export_acts_as_predict else {}))
        except ContractError as error:
            raise ContractError(f"{error} [{function.__name__}]") from error.__cause__
        except Exception as error:
            said = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            raise ContractError(f"{algorithm.__name__} raises {said} [{function.__name__}]") from error
