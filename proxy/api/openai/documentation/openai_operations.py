"""The Operations of OpenAI's routes, for the OpenAPI document."""

from __future__ import annotations

from triton_openai.proxy.api.openai.documentation import examples
from triton_openai.proxy.api.openai.documentation.answer_bodies import (
    ChatCompletion,
    ChatCompletionChunk,
    ModelBody,
    ModelList,
    RenderedPrompt,
    TextCompletion,
    TextCompletionChunk,
)
from triton_openai.proxy.api.openai.requests.chat_body import ChatCompletionBody
from triton_openai.proxy.api.openai.requests.completion_body import CompletionBody
from triton_openai.proxy.api.openapi.operation import (
    BODY,
    EVENTS,
    GENERATION,
    GENERATION_HEADERS,
    GENERATION_TAKES,
    JSON,
    Content,
    Operation,
)

HEADERS = ("x-attempts", "x-unenforced-keywords", "x-priority-capped", *GENERATION_HEADERS)

CHAT = Operation(
    tag="chat",
    takes=ChatCompletionBody,
    requests=examples.CHAT_REQUESTS,
    gives={
        JSON: Content(body=ChatCompletion, example=examples.CHAT),
        EVENTS: Content(body=ChatCompletionChunk, example=examples.CHAT_STREAM),
    },
    errors=GENERATION,
    headers=HEADERS,
    takes_headers=GENERATION_TAKES,
)
COMPLETION = Operation(
    tag="completions",
    takes=CompletionBody,
    requests=examples.COMPLETION_REQUESTS,
    gives={
        JSON: Content(body=TextCompletion, example=examples.COMPLETION),
        EVENTS: Content(body=TextCompletionChunk, example=examples.COMPLETION_STREAM),
    },
    errors=GENERATION,
    headers=HEADERS,
    takes_headers=GENERATION_TAKES,
)
RENDER = Operation(
    tag="chat",
    takes=ChatCompletionBody,
    requests=examples.CHAT_REQUESTS,
    gives={JSON: Content(body=RenderedPrompt, example=examples.RENDERED)},
    errors=(*BODY, 422),
)
MODELS = Operation(
    tag="models", gives={JSON: Content(body=ModelList, example=examples.MODELS)}, errors=(503,)
)
MODEL = Operation(
    tag="models", gives={JSON: Content(body=ModelBody, example=examples.MODEL)}, errors=(503,)
)
