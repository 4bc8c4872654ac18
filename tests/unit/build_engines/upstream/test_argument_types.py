"""argument_types: what fits a recorded type, and the reason where a value does not."""

from __future__ import annotations

import pytest

from build_engines.upstream.argument_types import differences
from build_engines.upstream.signatures import NEWER, OLDER, RecordedClasses

RECORD = RecordedClasses.read()
CACHE, MOE, SCHEDULER = "KvCacheConfig", "Optional[MoeConfig]", "SchedulerConfig"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (3, "int"),
        (3, "float"),
        (0.5, "Optional[float]"),
        (None, "Optional[int]"),
        (False, "bool"),
        ([4, 8], "Optional[List[int]]"),
        ({"a": 1}, "Dict[str, int]"),
        ({"a": 1}, "Optional[dict]"),
        ("b", "Literal['a', 'b']"),
        ("a", "Optional[Literal['a']]"),
        ("EQUAL_PROGRESS", "Optional[ContextChunkingPolicy]"),
        ("anything", "Union[str, SamplerType]"),
        ({"tokens_per_block": 64, "max_attention_window": [128, 4096]}, CACHE),
        ({"backend": "WIDEEP", "max_num_tokens": None}, MOE),
        (None, "SpeculativeConfig"),
        (0, "NonNegativeInt"),
        (None, "dict[str, int] | None"),
        ("auto", "bool | Literal['auto']"),
        (False, "bool | Literal['auto']"),
        (1, "Annotated[Union[str, int], Field(discriminator='a')]"),
    ],
)
def test_what_fits(value, kind):
    assert list(differences(value, kind, RECORD, "x")) == []


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        ("3", "int", "x is '3', must be int"),
        (True, "int", "x is True, must be int"),
        (1.5, "Optional[int]", "x is 1.5, must be int"),
        (1, "bool", "x is 1, must be bool"),
        (0, "PositiveInt", "x is 0, must be PositiveInt"),
        (-1, "Optional[NonNegativeInt]", "x is -1, must be NonNegativeInt"),
        ("on", "bool | Literal['auto']", "x is 'on', must be bool | Literal['auto']"),
        ([4, "8"], "List[int]", "x[1] is '8', must be int"),
        (4, "List[int]", "x is 4, must be List[int]"),
        ({"a": "1"}, "Dict[str, int]", "x.a is '1', must be int"),
        ("c", "Literal['a', 'b']", "x is 'c', must be Literal['a', 'b']"),
        (None, "Literal['a']", "x is None, must be Literal['a']"),
        (4, "Union[str, SamplerType]", "x is 4, must be Union[str, SamplerType]"),
        ("FAIR", "ContextChunkingPolicy", "x is 'FAIR', must be one of FIRST_COME_FIRST_SERVED"),
        (4, CACHE, "x is 4, must be a mapping with fields of KvCacheConfig"),
        ({"token_per_block": 64}, CACHE, "has no x.token_per_block: did you mean tokens_per_block"),
        ({"zzzzzz": 1}, MOE, "has no x.zzzzzz: MoeConfig has backend, disable_finalize_fusion"),
        ({"backend": "FAST"}, MOE, "x.backend is 'FAST', must be Literal['CUTLASS'"),
        (
            {"dynamic_batch_config": {"enable_batch_size_tuning": True}},
            SCHEDULER,
            "x.dynamic_batch_config needs enable_max_num_tokens_tuning",
        ),
        ({}, "Optional[object]", "x takes object, which cannot be written in models.yaml"),
        ({}, "Optional[QuantConfig]", "x takes QuantConfig, which cannot be written"),
        ("a" * 99, "int", f"x is '{'a' * 59}…, must be int"),
    ],
)
def test_what_does_not_fit_is_named_with_its_value_and_its_type(value, kind, said):
    assert said in "; ".join(differences(value, kind, RECORD, "x"))


@pytest.mark.parametrize("record", [OLDER, NEWER])
def test_every_recorded_type_of_an_argument_can_be_compared(record):
    recorded = RecordedClasses.read(record)
    for name in ("TorchLlmArgs", "KvCacheConfig", "MoeConfig", "SchedulerConfig"):
        for facts in recorded.fields(name).values():
            list(differences(object(), facts["type"], recorded, "x"))
