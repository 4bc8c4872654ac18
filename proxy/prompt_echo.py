"""The prompt's own tokens, as an engine sends them ahead of the answer. Used by choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from proxy.domain.events import LoggedToken
from proxy.domain.output import TokenDelta
from proxy.text import TextDecoder


@dataclass(frozen=True, slots=True)
class EchoedPrompt:
    """`logged`: its tokens, where log-probabilities came with them."""

    text: str = ""
    logged: tuple[LoggedToken, ...] = ()


def taken(
    delta: TokenDelta, *, strips_leading_space: bool, specials: Mapping[int, bytes]
) -> tuple[EchoedPrompt, TokenDelta]:
    """Of a stream's first delta: the prompt, and what remains of the answer.

    specials: special tokens that have text here, by id; the delta then has token ids.
    """
    count = delta.prompt_tokens or 0
    decoder = TextDecoder(strips_leading_space=strips_leading_space)
    text, logged = "", []
    for at, data in enumerate(delta.token_bytes[:count]):
        if specials and not data:
            data = specials.get(delta.token_ids[at], data)
        if delta.log_probs:
            logged.append(LoggedToken(data, delta.log_probs[at], len(text)))
        text += decoder.push(data)
    rest = replace(
        delta,
        token_bytes=delta.token_bytes[count:],
        token_ids=delta.token_ids[count:],
        log_probs=delta.log_probs[count:],
    )
    return EchoedPrompt(text + decoder.flush(), tuple(logged)), rest
