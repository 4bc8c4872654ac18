"""The whole surface: each parameter of OpenAI's specification, and of the servers whose clients
come here, does something, is accepted as the specification allows, or is refused by name; and the
table of parameters in docs/api.md says which.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from typing import Any, get_args

import pytest
import yaml

from proxy.api.openai.chat_body import ChatCompletionBody
from proxy.api.openai.completion_body import CompletionBody
from proxy.api.openai.generation_body import AnnotationName, ExtraField, NvExt, StreamOptions
from proxy.domain.model import LoadedModel
from proxy.domain.output import FinishReason
from tests.api.answers.test_parameters import logged
from tests.api.formats import BOTH, CHAT, TEXT, error_of
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine
from tests.fixtures import openai_api
from tests.fixtures.stack import ROOT

BODIES = {CHAT: ChatCompletionBody, TEXT: CompletionBody}
API = (ROOT / "docs" / "api.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| (chat|completions|both) \| (.+) \|$", re.MULTILINE)
# Of vLLM, SGLang, trtllm-serve, TGI and Dynamo, chat and completions together.
EXTENSIONS = re.findall(
    r"\w+",
    """
    top_k min_p top_p_min repetition_penalty min_tokens ignore_eos stop_token_ids
    include_stop_str_in_output skip_special_tokens spaces_between_special_tokens no_stop_trim
    stop_regex bad_words allowed_token_ids use_beam_search length_penalty early_stopping
    guided_json guided_regex guided_choice guided_grammar guided_decoding_backend
    guided_whitespace_pattern structured_outputs json_schema regex ebnf grammar chat_template
    chat_template_kwargs chat_template_args add_generation_prompt continue_final_message
    add_special_tokens documents
    truncate_prompt_tokens truncation_side priority cache_salt extra_key request_id rid session_id
    conversation_params session_control agent_context return_token_ids return_tokens_as_token_ids
    return_prompt_text return_meta_info prompt_logprobs logprob_token_ids thinking_token_budget
    thinking separate_reasoning stream_reasoning include_reasoning repetition_detection input_ids
    prompt_token_ids prompt_embeds vllm_xargs custom_params logits_processors
    custom_logit_processor lora_request lora_path nvext kv_transfer_params mm_processor_kwargs
    disaggregated_params return_hidden_states stream_interval echo suffix best_of
    """,
)
# What the specification lets a server take and not act upon; the log has the last three. The first
# two are of tools that the server runs, and this model has none.
WITHOUT_EFFECT = {
    "server_tools": False,
    "server_tool_events": False,
    "prediction": {"type": "content", "content": "x"},
    "prompt_cache_key": "x",
    "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
    "prompt_cache_retention": "24h",
    "store": False,
    "modalities": ["text"],
    "spaces_between_special_tokens": True,
    "include_reasoning": True,
    "separate_reasoning": True,
    "stream_reasoning": True,
    "guided_decoding_backend": "auto",
    "user": "x",
    "safety_identifier": "x",
    "metadata": {"a": "b"},
}
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOLS = {"tools": [FUNCTION]}
STREAM = {"stream": True}
# Field -> a value that shows, and what it takes beside it.
SAMPLES: dict[str, tuple[Any, dict[str, Any]]] = {
    "messages": ([{"role": "user", "content": "other"}], {}),
    "prompt": ("other", {}),
    "model": ("alias", {}),
    "max_tokens": (5, {}),
    "max_completion_tokens": (5, {}),
    "temperature": (0.5, {}),
    "top_p": (0.5, {}),
    "top_k": (5, {}),
    "min_p": (0.5, {}),
    "seed": (5, {}),
    "presence_penalty": (0.5, {}),
    "frequency_penalty": (0.5, {}),
    "repetition_penalty": (1.5, {}),
    "logit_bias": ({"5": 1}, {}),
    "allowed_token_ids": ([5], {}),
    "bad_words": (["x"], {}),
    "min_tokens": (3, {}),
    "ignore_eos": (True, {}),
    "stop": ("b", {}),
    "stop_token_ids": ([5], {}),
    "include_stop_str_in_output": (True, {"stop": "b"}),
    "skip_special_tokens": (False, {}),
    "add_special_tokens": (True, {"add_special_tokens": False}),
    "truncate_prompt_tokens": (5, {}),
    "truncation_side": ("right", {"truncate_prompt_tokens": 5}),
    "return_tokens_as_token_ids": (True, {"logprobs": True}),
    "n": (2, {}),
    "best_of": (2, {}),
    "stream": (True, {}),
    "stream_options": ({"include_usage": True}, STREAM),
    "include_timings": (True, {}),
    "return_token_ids": (True, {}),
    "priority": (5, {}),
    "cache_salt": ("x", {}),
    "request_id": ("mine", {}),
    "service_tier": ("auto", {}),
    "nvext": ({"top_k": 3}, {}),
    "logprobs": (True, {}),
    "top_logprobs": (1, {"logprobs": True}),
    "verbosity": ("low", {}),
    "reasoning_effort": ("low", {}),
    "add_generation_prompt": (False, {}),
    "continue_final_message": (
        True,
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]},
    ),
    "chat_template_kwargs": ({"extra": "x"}, {}),
    "chat_template": ("{{ messages[0].content }}", {}),
    "prompt_token_ids": ([5], {}),
    "documents": ([{"a": "b"}], {}),
    "thinking_token_budget": (1, {}),
    "tools": ([FUNCTION], {}),
    "tool_choice": ("none", TOOLS),
    "parallel_tool_calls": (False, TOOLS),
    "response_format": ({"type": "json_object"}, {}),
    "structured_outputs": ({"regex": "a"}, {}),
    "guided_json": (SCHEMA, {}),
    "guided_regex": ("a", {}),
    "guided_choice": (["a"], {}),
    "guided_grammar": ('root ::= "a"', {}),
    "json_schema": (json.dumps(SCHEMA), {}),
    "regex": ("a", {}),
    "ebnf": ('root ::= "a"', {}),
    "echo": (True, {}),
    "suffix": ("z", {}),
}
TEXT_SAMPLES = {"logprobs": (1, {}), "return_tokens_as_token_ids": (True, {"logprobs": 1})}
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n'
ANSWER = f"<think>\nwell then\n</think>\n\nab{CALL}{CALL}"
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}{{ m.content }}{{ m.tool_calls }}{% endfor %}{{ tools }}"
    "{{ documents }}{{ reasoning_effort }}{{ verbosity }}{{ extra }}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


class CapableCatalog(FixedCatalog):
    async def load(self):
        facts = replace(FACTS, chat_template=TEMPLATE, infilling=("<p>", "<s>", "<m>"))
        facts = replace(facts, special_tokens={3: b"<special>"})
        return (LoadedModel(name="demo", facts=facts),)


@pytest.fixture
def observed(serve, tmp_path):
    """observed(path, fields) -> all that the engine and the client see of a request."""
    entry = {
        "weights": "w",
        "aliases": ["alias"],
        "chat_template": True,
        "chat_template_kwargs": True,
        "tool_parser": "hermes",
        "reasoning_parser": "qwen3",
    }
    (tmp_path / "none.yaml").write_text(yaml.safe_dump({"models": {"demo": entry}}))

    def observe(path: str, fields: dict) -> tuple:
        engine = ScriptedEngine(logged(ANSWER, FinishReason.LENGTH))
        prompt = (
            {"prompt": "p"} if path == TEXT else {"messages": [{"role": "user", "content": "hi"}]}
        )
        response = serve(engine, CapableCatalog()).post(
            path, json={"model": "demo", **prompt, **fields}
        )
        assert response.status_code == 200, response.text
        told = re.sub(r'-[0-9a-f]{32}|"created":\d+', "", response.text)
        anonymous = {"id": "", "model": None, "interrupt": None, "stage": None}
        asked = [asdict(replace(one, **anonymous)) for one in engine.requests]
        return asked, told

    return observe


def fields_of(path: str) -> list[str]:
    return [name for name in BODIES[path].model_fields if name not in WITHOUT_EFFECT]


@pytest.mark.parametrize(
    ("path", "name"), [(path, name) for path in BODIES for name in fields_of(path)]
)
def test_every_field_that_is_taken_shows(observed, path, name):
    value, beside = (SAMPLES | TEXT_SAMPLES if path == TEXT else SAMPLES)[name]
    assert observed(path, {**beside, name: value}) != observed(path, beside)


@pytest.mark.parametrize("path", BODIES)
def test_what_has_no_effect_is_of_a_short_list(observed, path):
    given = {k: v for k, v in WITHOUT_EFFECT.items() if k in BODIES[path].model_fields}
    assert observed(path, given) == observed(path, {})


def rows(path: str) -> dict[str, str]:
    """Field -> what happens to it, by the table."""
    kind = "chat" if path.removeprefix("/v1").startswith("/chat") else "completions"
    found = [(name, fate) for name, of, fate in ROW.findall(API) if of in (kind, "both")]
    assert len(dict(found)) == len(found)
    return dict(found)


def is_refused(fate: str) -> bool:
    return bool(re.match("refused(:|$)", fate))


@pytest.mark.parametrize("path", BODIES)
def test_every_field_of_a_body_has_a_row_and_every_row_a_field(path):
    documented = {name for name, fate in rows(path).items() if not is_refused(fate)}
    assert documented == set(BODIES[path].model_fields)


@pytest.mark.parametrize("path", openai_api.REQUESTS)
def test_every_parameter_of_the_specification_has_a_row(path):
    assert set(openai_api.parameters(path)) <= rows(path).keys()


@BOTH
def test_what_the_table_calls_refused_is_and_so_are_other_extensions(idle, path, body):
    refused = {name for name, fate in rows(path).items() if is_refused(fate)}
    for name in refused | set(EXTENSIONS) - BODIES[path].model_fields.keys():
        response = idle.post(path, json={**body, name: 1})
        error = error_of(response)
        expected = (400, "unsupported_parameter", name)
        assert (response.status_code, error["code"], error["param"]) == expected


def test_each_stream_option_and_each_field_of_nvext_is_documented():
    options = rows(CHAT)["stream_options"]
    assert set(re.findall(r"`(\w+)`:", options)) == set(StreamOptions.model_fields)
    documented = API.partition("## nvext\n")[2].partition("## Errors\n")[0]
    found = re.findall(r"^\| `(\w+)` \|", documented, re.MULTILINE)
    known = [*NvExt.model_fields, *get_args(AnnotationName), *get_args(ExtraField)]
    assert sorted(found) == sorted(known)
