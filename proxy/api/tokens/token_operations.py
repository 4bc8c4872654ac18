"""Descriptions of /tokenize and /detokenize for the OpenAPI document."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from triton_openai.proxy.api.openapi.operation import BODY, JSON, Content, Operation
from triton_openai.proxy.api.tokens.token_bodies import DetokenizeBody, TokenizeBody


class Tokens(BaseModel):
    model_config = ConfigDict(extra="forbid")

    count: int = Field(ge=0)
    max_model_len: int = Field(ge=0, description="Tokens that the model's context holds.")
    tokens: list[int]
    token_strs: list[str] | None = Field(description="The tokens' texts, with `return_token_strs`.")


class Detokenized(BaseModel):
    model_config = ConfigDict(extra="forbid")

    prompt: str = Field(description="The text, without special tokens.")


TOKENIZE = Operation(
    tag="tokens",
    takes=TokenizeBody,
    requests={
        "text": {"prompt": "Hello", "return_token_strs": True},
        "messages": {"model": "demo", "messages": [{"role": "user", "content": "Hello"}]},
    },
    gives={
        JSON: Content(
            body=Tokens,
            example={
                "count": 2,
                "max_model_len": 4096,
                "tokens": [1, 71],
                "token_strs": ["", "Hello"],
            },
        )
    },
    errors=(*BODY, 422),
)
DETOKENIZE = Operation(
    tag="tokens",
    takes=DetokenizeBody,
    requests={"tokens": {"model": "demo", "tokens": [72, 101]}},
    gives={JSON: Content(body=Detokenized, example={"prompt": "Hello"})},
    errors=BODY,
)
