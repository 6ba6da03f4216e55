"""Names that papers and other libraries have for algorithms that are called otherwise here."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..data.errors import advised, did_you_mean, named

_NAMES = {  # by letters and digits alone, small
    "10bc": "BC",  # CORL's 10% BC, which takes the best tenth of the data
    "a3c": "A2C",  # PFRL
    "advantagelearning": "AL",  # Bellemare et al. 2016
    "advantageweightedregression": "AWR",
    "anypercentbc": "BC",  # CORL
    "behaviorcloning": "BC",
    "behaviourcloning": "BC",
    "c51": "CategoricalDQN",  # Bellemare et al. 2017
    "c51dqn": "CategoricalDQN",
    "conservativeqlearning": "CQL",
    "criticregularizedregression": "CRR",
    "d3qn": "DoubleDQN",
    "ddqn": "DoubleDQN",  # van Hasselt et al. 2016
    "dt": "DecisionTransformer",  # CORL
    "duelingdqn": "DQN",
    "dynamicpolicyprogramming": "DPP",
    "extremeqlearning": "XQL",
    "fittedqevaluation": "FQE",
    "fqf": "DQN",
    "implicitqlearning": "IQL",
    "neuralfittedq": "NFQ",
    "nfqi": "NFQ",
    "pets": "ProbabilisticEnsemble",  # Chua et al. 2018
    "policygradient": "REINFORCE",
    "probabilisticensembledynamics": "ProbabilisticEnsemble",  # d3rlpy
    "proximalpolicyoptimization": "PPO",
    "qrdqn": "DQN",  # Dabney et al. 2018
    "quantileregressiondqn": "DQN",
    "sacd": "DiscreteSAC",  # Christodoulou 2019
    "softactorcritic": "SAC",  # PFRL
    "td3bc": "TD3PlusBC",  # CORL: td3_bc
    "twindelayedddpg": "TD3",
    "vpg": "REINFORCE",
}
_Q_FUNCTIONS = {"fqf": "fqf", "qrdqn": "qr", "quantileregressiondqn": "qr"}  # that make DQN what was typed
_DUELING = ("d3qn", "duelingdqn")


def known_as(word: str, known: Iterable[str]) -> str | None:
    """The one of the known names that a spelling of papers, d3rlpy, CORL or PFRL means; None where it is no such spelling.

    Case, dashes, underlines and a + do not matter, nor whether "discrete" stands first or last: `td3_bc`, `TD3+BC`, `SAC-Discrete`.
    """
    plain = _plain(word)
    turned = "discrete" + plain.removesuffix("discrete") if plain.endswith("discrete") else plain
    for name in known:
        if _plain(name) in (plain, turned) or _NAMES.get(plain) == name:
            return name
    return None


def did_you_mean_algorithm(word: str, known: Iterable[str]) -> str:
    """Proposes the name of an algorithm: other spellings of a known one come before names that merely look alike."""
    names = list(known)
    if (meant := known_as(word, names)) is None:
        return did_you_mean(word, names)
    plain, beside = _plain(word), ""
    if plain in _Q_FUNCTIONS:
        beside = f" with {advised('q_function', _Q_FUNCTIONS[plain])}"
    elif plain in _DUELING:
        beside = f" with dueling in its {named('q_function')}"
    return f"; did you mean {meant!r}{beside}?"


def _plain(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.casefold())
