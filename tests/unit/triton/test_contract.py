"""The comparison with a model's metadata tells every difference."""

from __future__ import annotations

from tritonclient.grpc import service_pb2

from proxy.domain.model import CAPABILITIES
from proxy.triton import catalog, tensors


def metadata(*, without=(), retyped=()) -> service_pb2.ModelMetadataResponse:
    message = service_pb2.ModelMetadataResponse(name="demo")
    for rows, declared in (
        (tensors.INPUTS, message.inputs),
        (tensors.OUTPUTS, message.outputs),
    ):
        for row in rows:
            if row.name not in without:
                datatype = "FP64" if row.name in retyped else row.datatype
                declared.add(name=row.name, datatype=datatype)
    return message


def differences(message) -> list[str]:
    return catalog.tensor_differences(message, tensors.INPUTS, tensors.OUTPUTS)


def test_a_model_that_fits_has_none():
    assert differences(metadata()) == []


def test_missing_and_wrong_tensors_are_all_named():
    found = differences(metadata(without={"seed", "finish_reason"}, retyped={"top_p"}))
    assert found == [
        "demo: input top_p is FP64, must be FP32",
        "demo: output finish_reason is not declared, must be BYTES",
    ]


def test_another_contract_version_is_named():
    for supported in ("2", "3"):
        assert catalog.version_differences({"contract_version": supported}) == []
    for other in ("1", "4"):
        (told,) = catalog.version_differences({"contract_version": other})
        assert f"contract {other}, this proxy supports 2 and 3" in told


def test_a_model_of_contract_2_serves_all_but_continued_answers():
    older = metadata(without={"resume_from"})
    assert differences(older) == []
    assert capabilities(older) == CAPABILITIES - {"resume"}


def capabilities(message) -> frozenset[str]:
    return catalog.capabilities(message, tensors.INPUTS, tensors.OUTPUTS)


def test_a_model_that_declares_all_can_do_all():
    assert capabilities(metadata()) == CAPABILITIES


def test_what_a_model_does_not_declare_it_cannot_do_and_is_served_all_the_same():
    message = metadata(without={"min_p", "logit_bias_values", "top_log_prob_text", "output_ids"})
    assert differences(message) == []
    missing = {"min_p", "logit_bias", "top_log_probs", "token_ids"}
    assert capabilities(message) == CAPABILITIES - missing
