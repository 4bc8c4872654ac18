"""Text models whose parameters are tensors of their own: what llmapi, C++ and mappings share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import getrandbits

from tritonclient.grpc import service_pb2

from proxy.domain.engine import EngineRequest
from proxy.domain.output import FinishReason, TokenDelta
from proxy.triton import codec
from proxy.triton.dialects.dialect import finish_of, one_text, raw_outputs, tokens_of
from proxy.triton.local_tokenizer import local_tokenizer
from proxy.triton.tensors import Value

UNFINISHED = "\ufffd".encode()  # a character whose last bytes are still to come
COUNTED_BYTES = 16_384  # of an answer, in about four milliseconds; the rest is taken as alike
BYTES_A_TOKEN = 4  # where nobody counts: of a whole text in one response


def token_limit(request: EngineRequest) -> int:
    """The most tokens of an answer. Without a tokenizer nobody knows what the context leaves."""
    facts = request.model.facts
    return request.max_tokens or facts.default_max_tokens or facts.context_length


def named(
    values: Mapping[str, Value | None], inputs: Mapping[str, str]
) -> Iterable[tuple[str, Value | None]]:
    """Our names of parameters -> tensors."""
    return ((tensor, values[name]) for name, tensor in inputs.items() if name in values)


def trtllm_sampling(request: EngineRequest, names: Iterable[str]) -> dict[str, Value | None]:
    """TensorRT-LLM is greedy where nothing is said, has one seed for all requests that name none,
    and takes no temperature of 0.
    """
    sampling = request.sampling
    found: dict[str, Value | None] = {name: getattr(sampling, name) or None for name in names}
    if sampling.temperature == 0:
        return {**found, "temperature": None, "top_p": None, "top_k": 1}
    return {
        **found,
        "temperature": 1.0 if sampling.temperature is None else sampling.temperature,
        "top_k": sampling.top_k or 0,
        "top_p": sampling.top_p or 1.0,
        "seed": getrandbits(63) if sampling.seed is None else sampling.seed,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one stream's responses look like. is_cumulative: they repeat the text so far.

    prompt: the answer begins with it.
    """

    text: str = "text_output"
    finish: str | None = None
    prompt_tokens: str | None = None
    tokens: str | None = None
    is_cumulative: bool = False
    prompt: bytes = b""


class AnswerReader:
    """The responses of one stream. prompt_tokens: as the proxy has counted them, if it has."""

    def __init__(self, request: EngineRequest, answer: Answer, prompt_tokens: int | None) -> None:
        facts = request.model.facts
        assert facts.adopted is not None
        self._answer = answer
        self._adopted = facts.adopted
        self._prompt_tokens = prompt_tokens
        self._limit = token_limit(request)
        self._tokens = 0
        self._texts: list[bytes] = []
        self._seen = 0  # bytes of a text that is repeated
        self._prompt = answer.prompt
        self._is_first, self._has_ended = True, False

    def read(self, response: service_pb2.ModelInferResponse) -> codec.StreamMessage:
        is_final = response.parameters["triton_final_response"].bool_param
        raw, answer = raw_outputs(response), self._answer
        if self._has_ended or not (raw or is_final):
            return codec.StreamMessage(None, is_final)
        finish = None if answer.finish is None else finish_of(one_text(raw.get(answer.finish)))
        is_last = is_final or finish is not None or not self._adopted.is_decoupled
        text = self._added(one_text(raw.get(answer.text)), is_last=is_last)
        self._texts.append(text)
        count = self._count(raw, finish, is_last=is_last)
        self._tokens += count
        if is_last and finish is None:
            finish = FinishReason.LENGTH if self._tokens >= self._limit else FinishReason.STOP
        self._has_ended = finish is not None
        delta = TokenDelta(tokens_of(text, count), finish=finish)
        if self._is_first:
            self._is_first = False
            counted = None if answer.prompt_tokens is None else raw.get(answer.prompt_tokens)
            delta.prompt_tokens = codec.first_int(counted) or self._prompt_tokens or 0
        return codec.StreamMessage(delta, is_final)

    def _added(self, text: bytes, *, is_last: bool) -> bytes:
        """What the response adds to the answer."""
        if self._answer.is_cumulative:
            whole = text if is_last else text.removesuffix(UNFINISHED)
            text, self._seen = whole[self._seen :], max(self._seen, len(whole))
        if self._prompt and text:
            common = min(len(self._prompt), len(text))
            if text[:common] == self._prompt[:common]:
                text, self._prompt = text[common:], self._prompt[common:]
            else:
                self._prompt = b""
        return text

    def _count(
        self, raw: Mapping[str, bytes], finish: FinishReason | None, *, is_last: bool
    ) -> int:
        """Tokens of the response, as it says. Otherwise one, though there may be more; the last one
        has the tokens of the whole text that are missing, as a tokenizer counts them.
        """
        if self._answer.tokens is not None and self._answer.tokens in raw:
            return codec.first_int(raw[self._answer.tokens]) or 0
        whole = b"".join(self._texts) if is_last else b""
        if is_last and self._adopted.tokenizer is not None:
            tokenizer = local_tokenizer(self._adopted.tokenizer)
            end = int(finish is FinishReason.STOP)  # its token has no text
            counted = tokenizer.count(whole[:COUNTED_BYTES].decode(errors="replace"))
            if len(whole) > COUNTED_BYTES:
                counted = counted * len(whole) // COUNTED_BYTES
            return max(counted + end - self._tokens, 0)
        return int(bool(raw)) if self._adopted.is_decoupled else -(-len(whole) // BYTES_A_TOKEN)
