"""Limits of one request against a real tokenizer: exact counts, and defaults that fit."""

from __future__ import annotations

import httpx
import pytest

from tests.fixtures.stack import HANG_S, Stack

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
MOST_PROMPT, MOST_NEW = 40, 6
ENDLESS = {"model": "endless", "temperature": 0}


@pytest.fixture(scope="module")
def limited(stack: Stack, start, models_file) -> Stack:
    """A second proxy in front of the same Triton, with limits."""
    proxy = start(
        *("proxy", "--triton", f"grpc://127.0.0.1:{stack.triton_grpc_port}"),
        MAX_PROMPT_TOKENS=MOST_PROMPT,
        MAX_OUTPUT_TOKENS=MOST_NEW,
        MODELS_FILE=models_file,
    )
    proxy.wait_ready()
    return proxy


def post(stack: Stack, path: str, **body: object) -> httpx.Response:
    return httpx.post(f"{stack.url}{path}", json=body, timeout=HANG_S)


def error_of(response: httpx.Response) -> dict[str, str]:
    assert response.status_code == 400, response.text
    return response.json()["error"]


def test_a_prompt_of_the_longest_length_passes_and_one_token_more_does_not(stack, limited):
    ids = [5] * MOST_PROMPT
    answer = post(limited, TEXT, **ENDLESS, prompt=ids, add_special_tokens=False).json()
    assert answer["usage"]["prompt_tokens"] == MOST_PROMPT
    error = error_of(post(limited, TEXT, **ENDLESS, prompt=[*ids, 5], add_special_tokens=False))
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
    assert f"at most {MOST_PROMPT} tokens" in error["message"]
    assert f"has {MOST_PROMPT + 1}." in error["message"]
    assert post(stack, TEXT, **ENDLESS, prompt=[*ids, 5], max_tokens=1).status_code == 200


@pytest.mark.parametrize("times", [60, 100_000])
def test_a_chat_of_too_many_tokens_names_its_messages(limited, times):
    messages = [{"role": "user", "content": "word " * times}]
    error = error_of(post(limited, CHAT, model="demo", messages=messages))
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    assert f"at most {MOST_PROMPT} tokens" in error["message"]


def test_a_cut_prompt_obeys_the_limit(limited):
    def prompt_tokens(cut: int) -> httpx.Response:
        return post(limited, TEXT, **ENDLESS, prompt=[5] * 100, truncate_prompt_tokens=cut)

    assert prompt_tokens(-1).json()["usage"]["prompt_tokens"] == MOST_PROMPT
    assert prompt_tokens(30).json()["usage"]["prompt_tokens"] == 30
    assert error_of(prompt_tokens(50))["code"] == "context_length_exceeded"


@pytest.mark.parametrize("path", [TEXT, CHAT])
def test_without_max_tokens_the_answer_ends_at_the_limit(limited, path):
    prompt = {"prompt": "abc"} if path == TEXT else {"prompt_token_ids": [5, 6]}
    messages = {} if path == TEXT else {"messages": [{"role": "user", "content": "x"}]}
    answer = post(limited, path, **ENDLESS, **prompt, **messages).json()
    assert answer["usage"]["completion_tokens"] == MOST_NEW
    assert answer["choices"][0]["finish_reason"] == "length"
