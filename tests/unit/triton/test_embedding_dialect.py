"""The proxy's half of the tensors of our embedding models."""

from __future__ import annotations

import struct

import pytest
from tritonclient.grpc import service_pb2

from build_engines import triton_models
from proxy.domain.engine import EngineRequest
from proxy.domain.model import Kind, ModelCard
from proxy.domain.output import FinishReason
from proxy.domain.request import Sampling, TextPrompt, TokenPrompt
from proxy.triton.codec import ForeignReceipt, MalformedResponse, bytes_elements
from proxy.triton.dialects.recognition import DIALECTS, recognized

PARAMETERS = {
    "task": "embed",
    "width": "16",
    "dimensions": "4,8",
    "context_length": "32",
    "vocab_size": "24",
    "created": "7",
}


def found(**parameters: str):
    config = triton_models.config_of("embedding")
    for name, value in {**PARAMETERS, **parameters}.items():
        config.parameters[name].string_value = value
    return recognized(config, {config.name: config})


def request(**fields: object) -> EngineRequest:
    model = found().model
    card = ModelCard(name="e", triton_model="embedding", facts=model.facts)
    given = {"id": "r", "timeout_s": 9, "sampling": Sampling(), "embeds": 0, **fields}
    return EngineRequest(model=card, **given)


def sent(asked: EngineRequest) -> dict[str, tuple[list[int], bytes]]:
    message = DIALECTS[Kind.EMBEDDING].encode(asked)
    assert message.parameters["triton_enable_empty_final_response"].bool_param
    assert message.id == asked.id
    raw = message.raw_input_contents
    return {one.name: ([*one.shape], raw[at]) for at, one in enumerate(message.inputs)}


def answer(
    vectors: bytes, tokens: tuple[int, ...], ids: tuple[bytes, ...]
) -> service_pb2.ModelInferResponse:
    response = service_pb2.ModelInferResponse()
    given = {
        "pooled": vectors,
        "num_input_tokens": struct.pack(f"<{len(tokens)}i", *tokens),
        "pooled_for": b"".join(struct.pack("<I", len(one)) + one for one in ids),
    }
    for name, raw in given.items():
        response.outputs.add(name=name)
        response.raw_output_contents.append(raw)
    response.parameters["triton_final_response"].bool_param = True
    return response


def test_it_is_recognized_by_its_tensors_with_its_facts():
    model = found().model
    facts = model.facts
    assert model.capabilities == {"embeddings", "scores", "limits"}
    assert (facts.context_length, facts.vocab_size, facts.created) == (32, 24, 7)
    assert facts.says_context
    pooling = facts.pooling
    assert (pooling.width, pooling.dimensions, pooling.is_cross_encoder) == (16, (4, 8), False)
    cross_encoder = found(task="score", width="1", dimensions="").model
    assert cross_encoder.capabilities == {"scores", "limits"}
    assert cross_encoder.facts.pooling.dimensions == ()


def test_texts_of_a_batch_are_rows():
    batch = TextPrompt(text="a"), TextPrompt(text="bé")
    given = sent(request(text="a", embeds=4, prompt_cap=9, batch=batch))
    shape, texts = given["text_input"]
    assert (shape, bytes_elements(texts)) == ([2, 1], (b"a", "bé".encode()))
    assert given["dimensions"] == ([2, 1], struct.pack("<2i", 4, 4))
    assert given["max_prompt_tokens"] == ([2, 1], struct.pack("<2i", 9, 9))
    assert sent(request(text="a", batch=batch)).keys() == {"text_input"}


def test_rows_of_ids_are_as_long_as_the_longest():
    batch = TokenPrompt(ids=(1, 2, 3)), TokenPrompt(ids=(4,))
    given = sent(request(token_ids=(1, 2, 3), batch=batch))
    assert given == {"input_ids": ([2, 3], struct.pack("<6i", 1, 2, 3, 4, -1, -1))}


def test_a_pair_has_two_texts():
    given = sent(request(text="a", pair="b", batch=(TextPrompt(text="a", pair="b"),)))
    assert bytes_elements(given["text_pair"][1]) == (b"b",)


def test_an_answer_is_the_vectors_and_the_sum_of_the_tokens():
    asked = request(text="a", batch=(TextPrompt(text="a"),) * 2)
    read = DIALECTS[Kind.EMBEDDING].reader(asked, None)
    found = read(answer(b"x" * 8, (3, 4), (b"r", b"r")))
    assert found.is_final
    assert (found.delta.embedding, found.delta.prompt_tokens) == (b"x" * 8, 7)
    assert found.delta.finish is FinishReason.STOP


@pytest.mark.parametrize("ids", [(b"other",), (b"r", b"r"), ()])
def test_an_answer_for_another_request_is_foreign(ids):
    asked = request(text="a", batch=(TextPrompt(text="a"),))
    read = DIALECTS[Kind.EMBEDDING].reader(asked, None)
    with pytest.raises(ForeignReceipt):
        read(answer(b"x" * 4, (3,), ids))


def test_an_answer_without_contents_is_malformed():
    response = answer(b"x" * 4, (3,), (b"r",))
    del response.raw_output_contents[:]
    with pytest.raises(MalformedResponse):
        DIALECTS[Kind.EMBEDDING].reader(request(text="a"), None)(response)
