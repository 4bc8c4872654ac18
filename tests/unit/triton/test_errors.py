"""What Triton says -> what the caller is told."""

from __future__ import annotations

import json

import grpc
import pytest

from proxy.domain.errors import (
    DeadlineExceeded,
    EngineFailed,
    GuidePending,
    InvalidRequest,
    ModelUnavailable,
    RateLimited,
)
from proxy.triton.errors import STUB_LATE, error_of_message, error_of_status

REFUSAL = {"code": "context_length_exceeded", "param": "max_tokens", "message": "too long {x}"}


def test_a_refusal_of_the_tokenizer_keeps_code_param_and_message():
    error = error_of_message(f"in ensemble 'demo', {json.dumps(REFUSAL)}")
    assert isinstance(error, InvalidRequest)
    assert {"code": error.code, "param": error.param, "message": error.message} == REFUSAL


def test_a_guide_that_is_not_compiled_yet_is_no_fault_of_the_callers():
    pending = {"code": "guide_pending", "param": "guided_decoding_guide", "message": "wait"}
    assert type(error_of_message(f"in ensemble 'demo', {json.dumps(pending)}")) is GuidePending


@pytest.mark.parametrize(
    "fields",
    [
        {"code": "unheard_of", "param": "prompt", "message": "at /opt/tritonserver"},
        {"code": "invalid_parameter", "param": ["x"], "message": "at /opt/tritonserver"},
        {"code": ["invalid_parameter"], "param": "x", "message": "at /opt/tritonserver"},
    ],
)
def test_json_that_is_no_refusal_of_ours_is_not_passed_on(fields):
    error = error_of_message(f"in ensemble 'demo', {json.dumps(fields)}")
    assert type(error) is EngineFailed
    assert "tritonserver" not in error.message


def test_a_refusal_is_bounded_in_length():
    long = {"code": "invalid_parameter", "param": "p" * 10_000, "message": "m" * 10_000}
    error = error_of_message(json.dumps(long))
    assert len(error.message) + len(error.param) < 3_000


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("TensorRT-LLM's executor has ended: out of memory", ModelUnavailable),
        ("TensorRT-LLM hangs: 3 requests are in flight, and for 60 s", ModelUnavailable),
        ("vLLM's engine process has ended: see its output above", ModelUnavailable),
        ("vLLM hangs: 3 requests are in flight, and for 60 s", ModelUnavailable),
        ("generation failed: EngineCore encountered an issue.", ModelUnavailable),
        ("generation failed: TensorRT-LLM said no", EngineFailed),
        ("Request for unknown model: 'demo' is not found", ModelUnavailable),
        ("Server is stopping, scheduler for model has stopped accepting", ModelUnavailable),
        ("GRPC server is shutting down and has stopped accepting new requests.", ModelUnavailable),
        ("in ensemble 'demo', generation failed: {oops", EngineFailed),
        ("in ensemble 'demo', {\"code\": 1}", EngineFailed),
    ],
)
def test_other_messages(message, kind):
    error = error_of_message(message)
    assert type(error) is kind
    assert message not in error.message
    assert error.detail == message


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, ModelUnavailable),
        (grpc.StatusCode.CANCELLED, ModelUnavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceeded),
        (grpc.StatusCode.INTERNAL, EngineFailed),
    ],
)
def test_statuses(code, kind):
    error = error_of_status(code, "why")
    assert type(error) is kind
    assert "why" not in error.message


@pytest.mark.parametrize(
    "message",
    [
        'in ensemble \'demo\', {"code": "queue_full", "param": null, "message": "Full."}',
        "in ensemble 'demo', Maximum queue size of 9 has been reached, please try again later",
        "Exceeds maximum queue size",
    ],
)
def test_a_full_queue_is_a_rate_limit_of_its_own_code(message):
    error = error_of_message(message)
    assert isinstance(error, RateLimited)
    assert error.code == "queue_full"


@pytest.mark.parametrize(
    ("stub", "is_late"),
    [("demo_tokenizer_0_0", True), ("demo_detokenizer_0_0", True), ("demo_engine_0_0", False)],
)
def test_only_the_answers_of_tokenizers_and_detokenizers_go_to_other_requests(stub, is_late):
    message = f"in ensemble 'demo', Stub process '{stub}' is not healthy."
    assert isinstance(error_of_message(message), ModelUnavailable)
    assert bool(STUB_LATE.search(message)) is is_late
