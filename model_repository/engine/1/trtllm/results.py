"""One response of TensorRT-LLM's stream -> tokens for a job's sink, and the job's end."""

from __future__ import annotations

from typing import Any

from port import Job, Token, TokenLogProbs

# OpenAI's value for a token that is not among the most likely ones.
UNLIKELY = -9999.0


class Incomplete(RuntimeError):
    """TensorRT-LLM's response lacks something that the request wants."""


def write(job: Job, result: Any) -> bool:
    """Writes the newest response of a RequestOutput to the sink; returns whether the job is over.

    A response has any number of new tokens; the last one may have none.

    Raises:
        Incomplete: log-probabilities are missing, or the stream ends without a known reason.
    """
    output = result.outputs[0]
    tokens = _tokens(job, output)
    if not result.finished:
        for token in tokens:
            job.sink.token(token, None)
        return False
    match output.finish_reason:
        case "stop" | "length" as finish:
            for token in tokens[:-1]:
                job.sink.token(token, None)
            if tokens:
                job.sink.token(tokens[-1], finish)
            else:
                job.sink.finished(finish)
        case "cancelled":
            job.sink.cancelled()
        case other:
            raise Incomplete(f"TensorRT-LLM ended the request with the reason {other!r}")
    return True


def _tokens(job: Job, output: Any) -> list[Token]:
    ids = list(output.token_ids_diff)
    wanted = job.input.sampling.log_probs
    if wanted is None or not ids:  # without ids, logprobs_diff may be that of the last response
        return [Token(token_id) for token_id in ids]
    found = list(output.logprobs_diff)
    if len(found) != len(ids):
        raise Incomplete(
            f"TensorRT-LLM returned {len(found)} log-probabilities for {len(ids)} tokens"
        )
    return [
        Token(token_id, _log_probs(token_id, by_id, wanted))
        for token_id, by_id in zip(ids, found, strict=True)
    ]


def _log_probs(token_id: int, by_id: dict[int, Any], wanted: int) -> TokenLogProbs:
    ranked = sorted(((id_, one.logprob) for id_, one in by_id.items()), key=lambda one: -one[1])
    if len(ranked) < wanted:
        raise Incomplete(f"TensorRT-LLM returned {len(ranked)} alternatives, not {wanted}")
    own = by_id[token_id].logprob if token_id in by_id else UNLIKELY
    return TokenLogProbs(own, tuple(ranked[:wanted]))
