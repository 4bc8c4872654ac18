"""A guide that passes the trial and grows slow later, beside an honest stream of one engine."""

from __future__ import annotations

import itertools
import json
import threading
import time

import httpx

from tests.fixtures.stack import HANG_S

LONG = {"model": "endless", "prompt": "abc", "max_tokens": 3000, "temperature": 0, "stream": True}
# Beyond what the tokenizer's trial walks, so that only the engine can notice.
HOSTILE = 'root ::= [a-z]{900} s\ns ::= s s s | [a-z] | ""'
GAP_AT_MOST_S = 0.25
NOISE = 4  # times the largest gap of a run without attack, on a machine that does other things


def gaps_s(url: str, stop: threading.Event, into: list[float]) -> None:
    """Between the events of honest streams, one after another, until told to stop."""
    while not stop.is_set():
        times = []
        with httpx.stream("POST", f"{url}/v1/completions", json=LONG, timeout=HANG_S) as response:
            assert response.status_code == 200
            for line in response.iter_lines():
                if line:
                    times.append(time.monotonic())
                if stop.is_set():
                    break
        into += [later - sooner for sooner, later in itertools.pairwise(times)]


def attack(url: str) -> dict:
    """The error that the hostile stream ends with."""
    asked = {**LONG, "guided_grammar": HOSTILE}
    with httpx.stream("POST", f"{url}/v1/completions", json=asked, timeout=HANG_S) as response:
        assert response.status_code == 200, response.read()
        lines = [line for line in response.iter_lines() if line]
    assert len(lines) > 50, lines[-3:]
    return json.loads(lines[-2].removeprefix("data: "))["error"]


def measured(url: str, act) -> list[float]:
    """Gaps of an honest stream while `act` runs."""
    stop, gaps = threading.Event(), []
    bystander = threading.Thread(target=gaps_s, args=(url, stop, gaps))
    bystander.start()
    try:
        time.sleep(1)
        act()
    finally:
        stop.set()
        bystander.join()
    return gaps


def test_a_guide_that_grows_slow_is_ended_and_holds_up_no_honest_stream(stack):
    warm = {**LONG, "max_tokens": 5, "stream": False, "guided_regex": "warm|hot"}
    assert httpx.post(f"{stack.url}/v1/completions", json=warm, timeout=HANG_S).status_code == 200
    quiet = measured(stack.url, lambda: time.sleep(3))
    errors: list[dict] = []
    attacked = measured(stack.url, lambda: errors.append(attack(stack.url)))
    assert (errors[0]["code"], errors[0]["type"]) == ("guide_too_slow", "invalid_request_error")
    assert max(attacked) < max(GAP_AT_MOST_S, NOISE * max(quiet))
    again = httpx.post(
        f"{stack.url}/v1/completions",
        json={**LONG, "stream": False, "guided_grammar": HOSTILE},
        timeout=HANG_S,
    )
    assert (again.status_code, again.json()["error"]["code"]) == (422, "guide_too_slow")
