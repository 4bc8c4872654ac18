"""Parameters of both endpoints over a scripted engine: what reaches it, and what comes back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import EngineFailed
from proxy.domain.model import LoadedModel
from proxy.domain.output import Alternative, FinishReason, TokenDelta, TokenLogProb
from tests.api.formats import BOTH, CHAT, CHAT_BODY, TEXT, TEXT_BODY
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas


def logged(text: str, finish: FinishReason = FinishReason.STOP) -> list[TokenDelta]:
    """Scripted deltas with ids and log-probabilities, as many alternatives as two."""
    return [
        replace(
            delta,
            token_ids=tuple(range(at, at + len(delta.token_bytes))),
            log_probs=tuple(
                TokenLogProb(-0.5 - at, (Alternative(data, -0.5 - at), Alternative(b"\xff", -9.0)))
                for data in delta.token_bytes
            ),
        )
        for at, delta in enumerate(deltas(text, finish))
    ]


class SeededEngine(ScriptedEngine):
    """Each request gets deltas of its own, made from its seed."""

    async def generate(self, request: EngineRequest):
        self.scripts = [logged(f"seed{request.sampling.seed}é" * 2)]
        async for delta in super().generate(request):
            yield delta


class LimitedCatalog(FixedCatalog):
    """A model that can do nothing beyond what it must."""

    def __init__(self, *can: str) -> None:
        super().__init__()
        self.can = frozenset(can)

    async def load(self) -> tuple[LoadedModel, ...]:
        return (LoadedModel(name="demo", facts=FACTS, capabilities=self.can),)


def test_all_of_sampling_reaches_the_engine(serve):
    engine = ScriptedEngine(deltas("a"))
    given = {
        "top_k": 5,
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "presence_penalty": -2,
        "frequency_penalty": 2,
        "allowed_token_ids": [1, 2],
        "bad_words": ["x"],
        "min_tokens": 1,
        "ignore_eos": True,
        "stop_token_ids": [7],
    }
    response = serve(engine).post(CHAT, json={**CHAT_BODY, **given, "logit_bias": {"5": -100}})
    assert response.status_code == 200
    (seen,) = engine.requests
    for name, value in given.items():
        expected = tuple(value) if isinstance(value, list) else value
        assert getattr(seen.sampling, name) == expected
    assert seen.sampling.logit_bias == ((5, -100.0),)
    assert seen.wants_token_ids, "to hide the stop token"


def test_what_says_nothing_sends_nothing(serve):
    engine = ScriptedEngine(deltas("a"))
    nothing = ["tools", "seed", "top_k", "logit_bias", "n", "response_format", "anything"]
    body = {**CHAT_BODY, **dict.fromkeys(nothing), "bad_words": [], "stop_token_ids": []}
    assert serve(engine).post(CHAT, json=body).status_code == 200
    assert engine.requests[0].needed_capabilities == frozenset()


def test_the_sdks_own_dump_of_an_answer_may_be_sent_back(serve):
    dumped = {"role": "assistant", "content": "a", "refusal": None, "tool_calls": None}
    body = {**CHAT_BODY, "messages": [*CHAT_BODY["messages"], dumped, *CHAT_BODY["messages"]]}
    assert serve(ScriptedEngine(deltas("a"))).post(CHAT, json=body).status_code == 200


@pytest.mark.parametrize(
    "field",
    ["n", "top_k", "seed", "priority", "temperature", "presence_penalty", "max_tokens"],
)
def test_strange_numbers_are_answered_and_never_ours_to_blame(serve, field):
    client = serve(ScriptedEngine(deltas("a")))
    for number in ("1" * 5000, "-1", "1e400", "NaN", "Infinity", "1.5"):
        text = json.dumps({**CHAT_BODY, field: "NUMBER"}).replace('"NUMBER"', number)
        assert client.post(CHAT, content=text).status_code in (200, 400)


@pytest.mark.parametrize(("given", "sent"), [(-1, 0), (0, 0), (3, 3)])
def test_top_k_minus_one_keeps_all(serve, given, sent):
    engine = ScriptedEngine(deltas("a"))
    serve(engine).post(CHAT, json={**CHAT_BODY, "top_k": given})
    assert engine.requests[0].sampling.top_k == sent


def test_a_low_priority_is_early_here_and_a_high_one_in_the_engine(serve):
    engine = ScriptedEngine(deltas("a"))
    client = serve(engine, max_priority=3)
    client.post(CHAT, json={**CHAT_BODY, "priority": -3, "cache_salt": "s"})
    assert (engine.requests[0].priority, engine.requests[0].cache_salt) == (3, "s")


@BOTH
def test_choices_are_requests_with_ids_and_seeds_of_their_own(serve, path, body):
    engine = SeededEngine()
    answer = serve(engine).post(path, json={**body, "n": 3, "seed": 4}).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert {seen.sampling.seed for seen in engine.requests} == {4, 5, 6}
    assert {seen.id for seen in engine.requests} == {f"{answer['id']}-{i}" for i in range(3)}
    assert answer["usage"]["prompt_tokens"] == 7, "one prompt"
    assert answer["usage"]["completion_tokens"] == 3 * len("seed4é".encode() * 2) + 3


def test_many_prompts_have_choices_each_and_count_each(serve):
    engine = SeededEngine()
    body = {"model": "demo", "prompt": ["a", "b"], "n": 2, "seed": 1, "echo": True}
    answer = serve(engine).post(TEXT, json=body).json()
    texts = [choice["text"] for choice in answer["choices"]]
    assert [text[0] for text in texts] == ["a", "a", "b", "b"]
    assert texts[0][1:] == texts[2][1:]
    assert answer["usage"]["prompt_tokens"] == 14


def test_the_best_is_the_one_with_the_highest_mean_and_all_are_paid_for(serve):
    class Mixed(ScriptedEngine):
        async def generate(self, request):
            value = {1: -2.0, 2: -0.1, 3: -1.0}[request.sampling.seed]
            assert request.sampling.top_log_probs == 0
            yield TokenDelta(
                (str(request.sampling.seed).encode(),),
                prompt_tokens=5,
                finish=FinishReason.LENGTH,
                log_probs=(TokenLogProb(value),),
            )

    client = serve(Mixed())
    answer = client.post(TEXT, json={**TEXT_BODY, "best_of": 3, "n": 2, "seed": 1}).json()
    assert [choice["text"] for choice in answer["choices"]] == ["2", "3"]
    assert [choice["logprobs"] for choice in answer["choices"]] == [None, None]
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (5, 3)


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"best_of": 2, "n": 3}, "invalid_parameter", "best_of"),
        ({"best_of": 2, "stream": True}, "invalid_parameter", "best_of"),
        ({"echo": True, "guided_regex": "a"}, "invalid_parameter", "echo"),
        ({"max_tokens": 0}, "invalid_parameter", "max_tokens"),
        ({"max_tokens": -1, "echo": True}, "invalid_parameter", "max_tokens"),
        ({"logprobs": 21}, "invalid_parameter", "logprobs"),
        ({"suffix": "x"}, "unsupported_parameter", "suffix"),
        ({"prompt": ["x"] * 65, "n": 2}, "invalid_parameter", "prompt"),
        ({"prompt": [[1], [2**31]]}, "invalid_parameter", "prompt[1][0]"),
    ],
)
def test_completions_refuse_by_name(idle, fields, code, param):
    response = idle.post(TEXT, json={**TEXT_BODY, **fields})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, code, param)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {**CHAT_BODY, "min_p": 0.5}, "min_p"),
        (CHAT, {**CHAT_BODY, "logprobs": True}, "logprobs"),
        (CHAT, {**CHAT_BODY, "return_token_ids": True}, "return_token_ids"),
        (TEXT, {**TEXT_BODY, "logit_bias": {"1": 1}}, "logit_bias"),
        (TEXT, {**TEXT_BODY, "priority": 1}, "priority"),
        (TEXT, {**TEXT_BODY, "best_of": 2}, "logprobs"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_the_model_cannot_take_is_refused_by_name(serve, path, body, param, stream):
    if "best_of" in body and stream:
        pytest.skip("not with stream")
    engine = ScriptedEngine(deltas("a"))
    client = serve(engine, LimitedCatalog("temperature"))
    response = client.post(path, json={**body, "stream": stream})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "unsupported_parameter")
    assert error["param"] == param
    assert not engine.requests
    assert client.get("/v1/models/demo").json()["capabilities"] == ["temperature"]
    assert client.post(CHAT, json={**CHAT_BODY, "temperature": 1}).status_code == 200


def test_an_error_in_one_choice_ends_all(serve):
    engine = ScriptedEngine(deltas("ab", None), error=EngineFailed("it broke"))
    response = serve(engine).post(CHAT, json={**CHAT_BODY, "n": 3, "stream": True})
    assert response.text.count('"error"') == 1
    assert response.text.endswith("data: [DONE]\n\n")
    assert engine.closed_early == 3


def test_a_last_message_can_be_continued(serve):
    engine = ScriptedEngine(deltas("a"))
    messages = [*CHAT_BODY["messages"], {"role": "assistant", "content": "I am "}]
    body = {**CHAT_BODY, "messages": messages, "continue_final_message": True}
    assert serve(engine).post(CHAT, json=body).status_code == 200
    assert engine.requests[0].text == "<user>hi\n<assistant>I am "


def test_without_a_generation_prompt_the_prompt_ends_after_the_messages(serve):
    engine = ScriptedEngine(deltas("a"))
    serve(engine).post(CHAT, json={**CHAT_BODY, "add_generation_prompt": False})
    assert engine.requests[0].text == "<user>hi\n"


@pytest.mark.parametrize("fields", [{}, {"logprobs": False}])
def test_no_alternatives_may_be_asked_for_without_log_probabilities(serve, fields):
    engine = ScriptedEngine(deltas("a"))
    response = serve(engine).post(CHAT, json={**CHAT_BODY, "top_logprobs": 0, **fields})
    assert response.status_code == 200, response.text
    assert response.json()["choices"][0]["logprobs"] is None
    assert engine.requests[0].sampling.top_log_probs is None
