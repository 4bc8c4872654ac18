"""OpenAI's API but for its responses, with what other servers add to it."""

from __future__ import annotations

from proxy.api.manifest import AnswerWords, Manifest, Route
from proxy.api.openai.answer_bodies import ChatCompletionChunk, TextCompletionChunk
from proxy.domain.identity import Scope

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RERANK = Route(need=Scope.EMBEDDINGS, operation="rerank")
SCORE = Route(need=Scope.EMBEDDINGS, operation="score")

OPENAI = Manifest(
    routes={
        CHAT: Route(need=Scope.CHAT, operation="chat", is_recorded=True),
        f"{CHAT}/ws": Route(need=Scope.CHAT),
        f"{CHAT}/render": Route(need=Scope.TOKENS),
        COMPLETIONS: Route(need=Scope.COMPLETIONS, operation="text_completion", is_recorded=True),
        "/v1/embeddings": Route(need=Scope.EMBEDDINGS, operation="embeddings"),
        "/v1/rerank": RERANK,
        "/v1/score": SCORE,
        # as other clients ask for the last two
        "/v2/rerank": RERANK,
        "/rerank": RERANK,
        "/score": SCORE,
        "/v1/models": Route(need=Scope.MODELS),
        "/v1/models/{model:path}": Route(need=Scope.MODELS),
        "/dynamo/alpha/list-models": Route(need=Scope.MODELS),
    },
    events=(ChatCompletionChunk, TextCompletionChunk),
    described={
        "ChatCompletionBody": ("both", "chat"),
        "CompletionBody": ("both", "completions"),
        "NvExt": ("nvext",),
    },
    words=AnswerWords(
        texts=frozenset({"content", "text", "reasoning_content", "reasoning", "refusal"})
        | {"name", "arguments", "input"},
        finish="finish_reason",
        prompt_tokens=frozenset({"prompt_tokens"}),
        output_tokens="completion_tokens",
    ),
)
