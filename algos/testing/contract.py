"""The contract: all checks, in the order that a new algorithm meets them, cheapest first."""

from __future__ import annotations

from typing import Any

from ..base import Algorithm
from .acting import (
    check_actions_stay_in_their_space,
    check_export_acts_as_predict,
    check_predictions,
    check_row_acts_by_its_own_coefficients,
    check_scalers_act_once,
)
from .errors import Check, ContractError, check_name
from .legal import check_all_legal_is_no_mask, check_chooses_legal_actions, check_illegal_actions_are_unseen
from .losses import (
    check_bootstraps_by_the_batchs_discount,
    check_losses_are_per_sample,
    check_losses_repeat,
    check_moves_only_what_is_named,
    check_padding_is_unseen,
    check_targets_get_no_gradient,
    check_terminated_steps_look_no_further,
    check_truncation_is_unseen,
    check_update_reads_no_value,
)
from .runs import (
    check_learns_something,
    check_one_update_in_float32,
    check_randomness_has_addresses,
    check_resumes_bit_for_bit,
    check_row_equals_single_run,
)
from .settings import (
    check_refuses_other_actions,
    check_settings_are_described,
    check_settings_matter,
    check_settings_round_trip,
)
from .tiny import maker

CHECKS: tuple[Check, ...] = (
    check_settings_are_described,
    check_settings_round_trip,
    check_refuses_other_actions,
    check_learns_something,
    check_randomness_has_addresses,
    check_moves_only_what_is_named,
    check_losses_repeat,
    check_losses_are_per_sample,
    check_targets_get_no_gradient,
    check_bootstraps_by_the_batchs_discount,
    check_terminated_steps_look_no_further,
    check_padding_is_unseen,
    check_truncation_is_unseen,
    check_update_reads_no_value,
    check_one_update_in_float32,
    check_row_equals_single_run,
    check_resumes_bit_for_bit,
    check_predictions,
    check_actions_stay_in_their_space,
    check_row_acts_by_its_own_coefficients,
    check_export_acts_as_predict,
    check_scalers_act_once,
    check_chooses_legal_actions,
    check_illegal_actions_are_unseen,
    check_all_legal_is_no_mask,
    check_settings_matter,
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
            function(maker(algorithm, **settings), **({"onnx": onnx} if function is check_export_acts_as_predict else {}))
        except ContractError as error:
            raise ContractError(f"{error} [{function.__name__}]") from error.__cause__
        except Exception as error:
            said = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            raise ContractError(f"{algorithm.__name__} raises {said} [{function.__name__}]") from error
