"""Sampling as its definitions say it: one row, lists and loops, nothing clever."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from port import SamplingParams


@dataclass
class Case:
    """One row: logits of the real vocabulary; `guide` is the ids it allows, None for none."""

    logits: list[float]
    params: SamplingParams
    prompt: Sequence[int]
    output: Sequence[int]
    end_ids: frozenset[int]
    guide: frozenset[int] | None = None


def distribution(case: Case) -> list[tuple[int, float]]:
    """(token, probability) in the order in which the draw adds them up: by rank where something
    is cut off, by id otherwise. Empty where the guide leaves nothing."""
    logits = _penalised(_biased(_restricted(case), case), case)
    ranked = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if logits[ranked[0]] == -math.inf:
        return []
    params = case.params
    if params.temperature == 0:
        return [(ranked[0], 1.0)]
    best = logits[ranked[0]]
    weights = {token: math.exp((logits[token] - best) / params.temperature) for token in ranked}
    kept = [token for token in ranked if weights[token] >= params.min_p and weights[token] > 0]
    if params.top_k:
        kept = kept[: params.top_k]
    if params.top_p < 1:
        kept = _nucleus(kept, weights, params.top_p)
    if params.top_p == 1 and params.min_p == 0 and not 0 < params.top_k < len(logits):
        kept.sort()
    total = sum(weights[token] for token in kept)
    return [(token, weights[token] / total) for token in kept]


def drawn(distribution: list[tuple[int, float]], uniform: float, slack: float) -> set[int]:
    """The tokens whose share of [0, 1) holds the number: two at most, where it is at a border."""
    tokens, low = set(), 0.0
    for token, probability in distribution:
        if low - slack <= uniform < low + probability + slack:
            tokens.add(token)
        low += probability
    return tokens


def allowed(case: Case) -> list[float]:
    """The logits with those of tokens that the guide forbids at -inf."""
    guide = range(len(case.logits)) if case.guide is None else case.guide
    return [logit if id_ in guide else -math.inf for id_, logit in enumerate(case.logits)]


def log_softmax(logits: list[float]) -> list[float]:
    best = max(logits)
    normaliser = best + math.log(sum(math.exp(logit - best) for logit in logits))
    return [logit - normaliser for logit in logits]


def _restricted(case: Case) -> list[float]:
    params, everything = case.params, frozenset(range(len(case.logits)))
    banned = everything - case.guide if case.guide is not None else frozenset()
    rules = []
    if params.allowed_token_ids is not None:
        rules.append(everything - frozenset(params.allowed_token_ids))
    sequence = [*case.prompt, *case.output]
    rules.append(
        frozenset(
            word[-1]
            for word in params.bad_words
            if len(word) == 1 or sequence[1 - len(word) :] == list(word[:-1])
        )
    )
    if len(case.output) < params.min_tokens:
        rules.append(params.stop_token_ids | (frozenset() if params.ignore_eos else case.end_ids))
    for rule in rules:
        if any(case.logits[token] > -math.inf for token in everything - banned - rule):
            banned = banned | rule
    return [-math.inf if token in banned else logit for token, logit in enumerate(case.logits)]


def _biased(logits: list[float], case: Case) -> list[float]:
    bias = dict(case.params.logit_bias)
    return [logit + bias.get(token, 0) for token, logit in enumerate(logits)]


def _penalised(logits: list[float], case: Case) -> list[float]:
    params, result = case.params, []
    for token, logit in enumerate(logits):
        count = case.output.count(token)
        if token in case.prompt or count:
            factor = params.repetition_penalty
            logit = logit / factor if logit > 0 else logit * factor
        logit -= params.frequency_penalty * count
        logit -= params.presence_penalty * (count > 0)
        result.append(logit)
    return result


def _nucleus(ranked: list[int], weights: dict[int, float], top_p: float) -> list[int]:
    """The fewest that reach top_p; a millionth may be missing, as float32 may lose it."""
    total, mass = sum(weights[token] for token in ranked), 0.0
    for count, token in enumerate(ranked, 1):
        mass += weights[token]
        if mass >= (top_p - 1e-6) * total:
            return ranked[:count]
    return ranked
