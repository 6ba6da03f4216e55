"""What a page may not say."""

from typing import Any, ClassVar

import pytest

from d3ray.algos.values.dqn import DQN, DQNConfig


@pytest.mark.parametrize("attributes", [{}, {"Config": DQNConfig}], ids=["inherits its Config", "has a Config"])
def test_a_constructor_of_its_own_is_refused(attributes: dict[str, Any]) -> None:
    def __init__(self: Any, policy: Any, **settings: Any) -> None:  # noqa: N807
        DQN.__init__(self, **settings)
        self.policy = policy

    with pytest.raises(TypeError) as caught:
        type("Judge", (DQN,), {**attributes, "__init__": __init__})
    assert str(caught.value) == (
        "Judge has an __init__ of its own, and an algorithm is made from its settings alone: make what it takes fields of "
        "its Config, and what follows from them in networks or completed."
    )


def test_a_subclass_without_one_has_the_settings_of_its_config() -> None:
    class Wider(DQNConfig):
        width: int = 3

    class Child(DQN):
        Config: ClassVar = Wider

    assert Child(width=5).get_params()["width"] == 5
