"""Algorithms are scikit-learn's estimators: its own checks, its splitters, searches and pipelines, and copies over devices."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, RandomizedSearchCV, cross_validate, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import InputTags
from sklearn.utils.estimator_checks import check_estimator

import d3ray
from d3ray import MDPDataset
from d3ray.algos.devices import Device, parallel, pick_device
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.errors import ConfigError
from d3ray.metrics import discrete_action_match_scorer, soft_opc_scorer, td_error_scorer

DATA = MDPDataset.from_episodes(tiny_dataset(discrete=True, n=200).episodes)


# ---- scikit-learn's own checks


class OfTables(d3ray.DQN):
    """What scikit-learn's checks fit is a table: each row becomes an episode of one step."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = InputTags(two_d_array=True)
        return tags

    def fit(self, X: Any, y: Any = None) -> OfTables:  # pyright: ignore
        rows = np.asarray(X, np.float32)
        data = MDPDataset(rows, np.arange(len(rows)) % 2, np.zeros(len(rows)), np.ones(len(rows)))
        return super().fit(list(data.episodes), n_steps=2)


TABLES = "it is of tables, which episodes are not"
NOT_KEPT = {
    "check_estimators_unfitted": "an untrained algorithm raises ConfigError, for which nobody needs scikit-learn",
    "check_do_not_raise_errors_in_init_or_set_params": "a seed that is none is refused where it is given",
    "check_parameters_default_constructible": "defaults are frozen configs too, as Mean()",
    "check_n_features_in": TABLES,
    "check_n_features_in_after_fitting": TABLES,
    "check_complex_data": TABLES,
    "check_estimators_empty_data_messages": TABLES,
    "check_estimator_sparse_array": TABLES,
    "check_estimator_sparse_tag": TABLES,
    "check_estimator_sparse_matrix": TABLES,
    "check_fit1d": TABLES,
    "check_fit2d_predict1d": TABLES,
}
KEPT = {
    "check_estimators_nan_inf",
    *("check_estimator_cloneable", "check_estimator_tags_renamed", "check_valid_tag_types", "check_estimator_repr"),
    *("check_no_attributes_set_in_init", "check_fit_score_takes_y", "check_estimators_overwrite_params", "check_fit_idempotent"),
    *("check_dont_overwrite_parameters", "check_estimators_fit_returns_self", "check_readonly_memmap_input", "check_mixin_order"),
    *("check_positive_only_tag_during_fit", "check_estimators_dtypes", "check_pipeline_consistency", "check_estimators_pickle"),
    *("check_f_contiguous_array_estimator", "check_methods_sample_order_invariance"),
    *("check_methods_subset_invariance", "check_fit2d_1sample", "check_fit2d_1feature", "check_get_params_invariance"),
    *("check_set_params", "check_dict_unchanged", "check_fit_check_is_fitted"),
}


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks_pass_where_they_apply() -> None:
    (alone,) = check_estimator(d3ray.DQN())  # of what takes no tables it checks that it can be cloned
    assert alone["status"] == "passed"
    made = maker(OfTables)(device="cpu")
    found = check_estimator(made, expected_failed_checks=NOT_KEPT, on_fail=None, on_skip=None)
    by_status = {status: {f["check_name"] for f in found if f["status"] == status} for status in ("passed", "xfail", "failed")}
    assert by_status["failed"] == set()
    assert by_status["xfail"] == NOT_KEPT.keys()  # each of them still fails, and for no other
    assert by_status["passed"] >= KEPT


# ---- its tools


def test_splits_searches_and_scores() -> None:
    train, test = train_test_split(DATA, test_size=0.2, random_state=0)
    assert (len(train) + len(test), len(test)) == (DATA.n_episodes, -(-DATA.n_episodes // 5))
    dqn = maker(d3ray.DQN)(seed=1)
    scoring = {"td": td_error_scorer, "match": discrete_action_match_scorer}
    found = cross_validate(dqn, DATA, cv=KFold(2), scoring=scoring, params={"n_epochs": 1}, return_estimator=True)
    for k, (_, part) in enumerate(KFold(2).split(DATA)):
        assert found["test_td"][k] == pytest.approx(td_error_scorer(found["estimator"][k], DATA.take(part)), rel=1e-6)
    one = cross_validate(dqn, DATA, cv=2, scoring=td_error_scorer, params={"n_steps": 2})["test_score"]
    grid = {"learning_rate": [1e-6, 1e-3], "n_critics": [1, 2]}
    search = GridSearchCV(dqn, grid, cv=2, scoring=td_error_scorer, error_score="raise").fit(DATA.episodes, n_steps=2)
    assert search.best_estimator_.step == 2
    assert search.score(test) == td_error_scorer(search.best_estimator_, test)  # the larger is the better
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    assert len(one) == 2
    some = RandomizedSearchCV(dqn, {"gamma": [0.5, 0.9, 0.99]}, n_iter=2, cv=2, scoring=scoring, refit=False, random_state=0)
    assert np.isfinite(some.fit(DATA.episodes, n_epochs=1).cv_results_["mean_test_td"]).all()
    pipe = make_pipeline(FunctionTransformer(lambda episodes: sorted(episodes, key=len)[-5:]), dqn)
    pipe.fit(train, dqn__n_epochs=1)
    assert pipe[-1].fit_.sources.given.n_episodes == 5
    assert clone(pipe)[-1].get_params() == dqn.get_params()


def test_what_fails_in_a_search_is_said_and_a_misspelt_setting_is_refused() -> None:
    dqn = maker(d3ray.DQN)()
    with pytest.warns(UserWarning, match="no episode returns 1e\\+06 or more"):
        scores = cross_validate(dqn, DATA, cv=2, scoring=soft_opc_scorer(1e6), params={"n_steps": 1})
    assert np.isnan(scores["test_score"]).all()
    misspelt = GridSearchCV(dqn, {"learning_rat": [1e-3]}, cv=2, scoring=td_error_scorer, error_score="raise")
    with pytest.raises(ConfigError, match=r"DQN has no setting 'learning_rat'; did you mean 'learning_rate'\?"):
        misspelt.fit(DATA.episodes, n_steps=1)
    with pytest.raises(ValueError, match="DQN: n_critics is 0"):
        GridSearchCV(dqn, {"n_critics": [0]}, cv=2, scoring=td_error_scorer).fit(DATA.episodes, n_steps=1)


@pytest.mark.long
def test_processes_score_as_one_does() -> None:
    dqn = maker(d3ray.DQN)(seed=1, device="cpu")
    alone, side_by_side = (
        cross_validate(dqn, DATA, cv=2, scoring=soft_opc_scorer(0.0), params={"n_steps": 3}, n_jobs=n, error_score="raise")
        for n in (1, 2)
    )
    np.testing.assert_allclose(side_by_side["test_score"], alone["test_score"], rtol=1e-6)


# ---- devices


def test_copies_spread_over_devices_within_parallel_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 3)
    dqn = d3ray.DQN(use_gpu=True)
    assert dqn.device == Device(0) != Device(1)
    assert [clone(dqn).device.get_id() for _ in range(4)] == [0] * 4
    with parallel():
        with parallel():
            assert clone(dqn).device.get_id() == 1
        assert [clone(dqn).device.get_id() for _ in range(4)] == [2, 0, 1, 2]
        assert pickle.loads(pickle.dumps(dqn)).device == Device(2)  # to a worker process it goes as it is
    assert [copy.deepcopy(dqn).device.get_id(), clone(d3ray.DQN(use_gpu=Device(1))).device.get_id()] == [2, 1]
    assert repr(dqn) == "DQN(seed=0, device=Device(2))"


def test_devices_are_picked_by_their_numbers() -> None:
    assert (d3ray.DQN(use_gpu=False).device, d3ray.DQN(use_gpu=0).device) == (False, 0)  # a number is no truth value
    assert d3ray.DQN(use_gpu=Device(1)).device == Device(1)
    for wrong in (-1, True, "cuda"):
        with pytest.raises(ConfigError, match="accelerators have numbers, from 0"):
            Device(wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="device is 'cpu' and use_gpu True; say one of them"):
        d3ray.DQN(use_gpu=True, device="cpu")
    if not torch.accelerator.is_available():
        with pytest.raises(ConfigError, match=r"^There is no device Device\(0\) here: "):
            pick_device(Device(0))


@pytest.mark.gpu
def test_a_device_is_trained_on() -> None:
    algorithm = maker(d3ray.DQN)(use_gpu=True).fit(DATA, 2)
    assert algorithm.fit_.device == torch.device("cuda:0")
    assert td_error_scorer(algorithm, DATA) < 0
