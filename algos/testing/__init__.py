"""The contract that every algorithm keeps: `check_algorithm(MyAlgorithm)` gives a user's own algorithm the same tests as ours.

Each check is one sentence about an algorithm, its docstring; what it raises says where to look. `CHECKS` has them all, each a
function of `maker(MyAlgorithm, **settings)`.
"""

from .acting import (
    check_actions_stay_in_their_space,
    check_export_acts_as_predict,
    check_predictions,
    check_row_acts_by_its_own_coefficients,
    check_scalers_act_once,
)
from .alternatives import alternatives, other_floats
from .contract import CHECKS, check_algorithm
from .errors import Check, ContractError, Make, check_name, largest_difference
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
from .tiny import SMALL, data_for, maker, tiny_arrays, tiny_dataset

__all__ = [
    "CHECKS",
    "SMALL",
    "Check",
    "ContractError",
    "Make",
    "alternatives",
    "check_actions_stay_in_their_space",
    "check_algorithm",
    "check_all_legal_is_no_mask",
    "check_bootstraps_by_the_batchs_discount",
    "check_chooses_legal_actions",
    "check_export_acts_as_predict",
    "check_illegal_actions_are_unseen",
    "check_learns_something",
    "check_losses_are_per_sample",
    "check_losses_repeat",
    "check_moves_only_what_is_named",
    "check_name",
    "check_one_update_in_float32",
    "check_padding_is_unseen",
    "check_predictions",
    "check_randomness_has_addresses",
    "check_refuses_other_actions",
    "check_resumes_bit_for_bit",
    "check_row_acts_by_its_own_coefficients",
    "check_row_equals_single_run",
    "check_scalers_act_once",
    "check_settings_are_described",
    "check_settings_matter",
    "check_settings_round_trip",
    "check_targets_get_no_gradient",
    "check_terminated_steps_look_no_further",
    "check_truncation_is_unseen",
    "check_update_reads_no_value",
    "data_for",
    "largest_difference",
    "maker",
    "other_floats",
    "tiny_arrays",
    "tiny_dataset",
]
