"""Whatever is wrong with a request, the answer is one status and one sentence."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load, save

from d3ray.data.errors import ConfigError
from d3ray.platform.service.settings import ServiceSettings

from .packages import OBSERVATION, Client, serving


@pytest.fixture(scope="module")
def client(discrete: Path, continuous: Path, looks_back: Path) -> Any:
    bounds = {"request_mb": 0.01, "decisions": 3}
    with serving(discrete, continuous, looks_back, bounds=bounds) as (client, _):
        yield client


def changed(state: str, **arrays: Any) -> str:
    """A state with other arrays than a service gave."""
    content = base64.b64decode(state)
    about = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    return base64.b64encode(save({**load(content), **arrays}, metadata=about)).decode()


WRONG = {
    "a wrong shape": ("dqn", {"observation": [1.0, 2.0]}, 422, "shape (1, 2)"),
    "an axis too many": ("dqn", {"observation": [OBSERVATION]}, 422, "no axis for a batch"),
    "ragged": ("dqn", {"observation": [[1.0], [1.0, 2.0]]}, 422, "no array of numbers"),
    "words": ("dqn", {"observation": ["a"] * 5}, 422, "no numbers"),
    "NaN": ("dqn", {"observation": [float("nan")] * 5}, 422, "NaN or infinite"),
    "a number too large": ("dqn", {"observation": [1e300] * 5}, 422, "beyond those of float32"),
    "a dict where none is seen": ("dqn", {"observation": {"a": 1}}, 422, "Observation"),
    "no observation": ("dqn", {"episode": "e"}, 422, "needs 'observation'"),
    "an unknown key": ("dqn", {"observation": OBSERVATION, "observaton": 1}, 422, "did you mean 'observation'?"),
    "a mask that forbids all": ("dqn", {"observation": OBSERVATION, "action_mask": [False] * 3}, 422, "no legal action"),
    "a mask of another length": ("dqn", {"observation": OBSERVATION, "action_mask": [True] * 4}, 422, "action_mask has the shape"),
    "a mask where none is known": ("td3", {"observation": OBSERVATION, "action_mask": [True] * 3}, 422, "takes no action_mask"),
    "a step below 0": ("dqn", {"observation": OBSERVATION, "episode": "e", "step": -1}, 422, "step is -1"),
    "a step of no episode": ("dqn", {"observation": OBSERVATION, "step": 4}, 422, "say which, as episode"),
    "no state": ("transformer", {"observation": OBSERVATION, "episode": "e", "step": 3}, 422, "hand in the state"),
    "no state at all": ("dqn", {"observation": OBSERVATION, "state": "AAAA"}, 422, "none that this service gave"),
    "a return where none is asked for": ("td3", {"observation": OBSERVATION, "target_return": 1.0}, 422, "leave target_return out"),
    "an unknown version": ("dqn", {"observation": OBSERVATION, "version": "7"}, 404, "has no version '7'"),
    "an unknown policy": ("dqm", {"observation": OBSERVATION}, 404, "no policy 'dqm'"),
    "too many": ("dqn", {"decisions": [{"observation": OBSERVATION}] * 4}, 413, "one may have 3"),
    "none": ("dqn", {"decisions": []}, 422, "decisions"),
    "too large": ("dqn", {"observation": OBSERVATION, "episode": "e" * 20_000}, 413, "more than the 0.01 MB"),
    "the second": ("dqn", {"decisions": [{"observation": OBSERVATION}, {"observation": [1.0]}]}, 422, "Decision 1:"),
}


@pytest.mark.parametrize("what", WRONG)
def test_one_sentence(client: Client, what: str) -> None:
    policy, body, status, part = WRONG[what]
    found, sentence = client.refused(body, f"/{policy}/act")
    assert found == status, sentence
    assert part in sentence, sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b"nothing", b"[" * 9_000, b"\xff\xfe"])
def test_no_json(client: Client, raw: bytes) -> None:
    status, found = client.ask("/dqn/act", raw=raw)
    assert status == 422
    assert "JSON" in found["detail"]


def test_a_state_of_another_policy_or_shape(client: Client) -> None:
    state = client.ask("/transformer/act", {"observation": OBSERVATION, "episode": "e"})[1]["state"]
    assert "of the policy 'transformer'" in client.refused({"observation": OBSERVATION, "state": state}, "/dqn/act")[1]
    wrong = {
        "does not fit": {"own/context/observation": load(base64.b64decode(state))["own/context/observation"][:, 1:]},
        "NaN or infinite": {"own/context/return_to_go": load(base64.b64decode(state))["own/context/return_to_go"] * float("inf")},
    }
    for part, arrays in wrong.items():
        body = {"observation": OBSERVATION, "state": changed(state, **arrays)}
        status, sentence = client.refused(body, "/transformer/act")
        assert status == 422
        assert part in sentence
    for more in ({"episode": "other"}, {"step": 5}):
        assert client.refused({"observation": OBSERVATION, "state": state, **more}, "/transformer/act")[0] == 422


def test_without_the_token_nothing_is_told(client: Client) -> None:
    for token in (None, "wrong", ""):
        stranger = Client(client.address, token)
        assert stranger.refused({"observation": OBSERVATION}, "/dqn/act")[0] == 401
        assert stranger.ask("/status")[0] == 401
        assert stranger.ask("/dqn/status")[0] == 401
        assert [stranger.ask(f"{start}/{path}")[0] for start in ("", "/dqn") for path in ("health", "ready")] == [200] * 4


def test_a_body_that_does_not_say_its_size_is_cut_off(client: Client) -> None:
    import http.client

    connection = http.client.HTTPConnection(client.address.removeprefix("http://"), timeout=30)
    parts = (b"x" * 1000 for _ in range(20))
    connection.request("POST", "/dqn/act", body=parts, headers={"Authorization": f"Bearer {client.token}"}, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_what_takes_too_long_or_is_too_much_is_said(discrete: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(discrete, bounds={"seconds": 0.05, "waiting": 1}) as (client, service):
        (policy,) = service.policies.values()
        decide = policy.decide

        def slow(cases: Any) -> Any:
            time.sleep(0.3)
            return decide(cases)

        monkeypatch.setattr(policy, "decide", slow)
        status, sentence = client.refused({"observation": OBSERVATION})
        assert (status, "within 0.05 seconds" in sentence) == (504, True)
    with serving(discrete, bounds={"waiting": 1}) as (client, service):
        (policy,) = service.policies.values()
        inner: list[tuple[int, str]] = []
        decide_now = policy.decide

        def meanwhile(cases: Any) -> Any:
            inner.append(client.refused({"observation": OBSERVATION}))
            return decide_now(cases)

        monkeypatch.setattr(policy, "decide", meanwhile)
        assert client.act()["action"] in (0, 1, 2)
    assert inner == [(503, "The service has as many requests in hand as it may: ask again.")]


def test_outcomes_without_a_log(client: Client) -> None:
    status, sentence = client.refused({"episode": "e", "step": 0, "reward": 1.0}, "/dqn/outcome")
    assert status == 422
    assert "log=FOLDER" in sentence


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({}, "Nothing is to be served"),
        ({"sources": ("a/b", "c/b")}, "Two policies are called 'b'"),
        ({"sources": ("x/act",)}, "cannot be the name"),
        ({"sources": ("a",), "outside": 1.0}, "say reference=DATASET"),
        ({"sources": ("a",), "explore": {"name": "epsilom"}}, "did you mean 'epsilon'?"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError, match=part.replace("?", r"\?")):
        ServiceSettings.checked(settings).served()
