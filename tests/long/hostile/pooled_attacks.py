"""Embeddings, rerank and score: what one request multiplies, and many inputs with one wrong one."""

from __future__ import annotations

from typing import Any

from tests.long.hostile.attack import Attack, Target
from tests.long.hostile.caller import Body, burst, encoded, post

EMBEDDINGS, RERANK, SCORE = "/v1/embeddings", "/v1/rerank", "/v1/score"
MOST = 2_048  # inputs of one request
LONG = "é" * 900_000  # as large as a body may be; its bytes are twice its characters
OWN = {f"{number:x}": 0 for number in range(150)}
REFUSED = frozenset({400, 413, 422})


def pooled(**fields: Any) -> Body:
    """Written as it is: an escape is six bytes of the body, where the letter has two."""

    def body(target: Target) -> bytes:
        return encoded({"model": target.pooled, **fields}, ascii_only=False)

    return body


def generating(**fields: Any) -> Body:
    return lambda target: {"model": target.steady, **fields}


PRODUCTS = [
    Attack("rerank: a long query with 2,048 documents",
        post(pooled(query=LONG, documents=["a"] * MOST), RERANK), answers=REFUSED),
    Attack("rerank: a query of 3,900 two-byte letters with 2,048 documents",
        post(pooled(query="é" * 3_900, documents=["a"] * MOST), RERANK), wall_s=20),
    Attack("score: one long text with 2,048",
        post(pooled(text_1=LONG, text_2=["a"] * MOST), SCORE), answers=REFUSED),
    Attack("score: a long query in a list with 2,048 documents",
        post(pooled(queries=[LONG], documents=["a"] * MOST), SCORE), answers=REFUSED),
    Attack("score: 2,048 pairs of 400 letters",
        post(pooled(text_1=["é" * 200] * MOST, text_2=["é" * 200] * MOST), SCORE), wall_s=20),
    Attack("score: 60,000 texts to one", post(pooled(text_1=["a"] * 60_000, text_2="b"), SCORE),
        answers=REFUSED),
]  # fmt: skip

INPUTS = [
    Attack("embeddings: 2,048 texts of 450 two-byte letters",
        post(pooled(input=["é" * 450] * MOST), EMBEDDINGS), wall_s=20),
    Attack("embeddings: one text of 1.8 MB", post(pooled(input=LONG), EMBEDDINGS)),
    Attack("embeddings: 2,048 lists of ids, the last of them wrong",
        post(pooled(input=[[1]] * (MOST - 1) + [[10**9]]), EMBEDDINGS), answers=REFUSED),
    Attack("embeddings: 2,048 lists of ids, the last of them too long",
        post(pooled(input=[[1]] * (MOST - 1) + [[1] * 9_000]), EMBEDDINGS), answers=REFUSED),
    Attack("embeddings: 190,000 ids", post(pooled(input=[1] * 190_000), EMBEDDINGS)),
    Attack("embeddings: 100,000 texts", post(pooled(input=["a"] * 100_000), EMBEDDINGS),
        answers=REFUSED),
    Attack("embeddings: dimensions that the model lacks, for 2,048 texts",
        post(pooled(input=["a"] * MOST, dimensions=3), EMBEDDINGS), answers=REFUSED),
    Attack("embeddings: 2,048 texts for a model that generates",
        post(generating(input=["a"] * MOST), EMBEDDINGS), answers=REFUSED),
    Attack("rerank: 2,048 documents as objects of one letter",
        post(pooled(query="a", documents=[{"text": "a"}] * MOST), RERANK), wall_s=20),
    Attack("rerank: 2,048 documents with 900 bytes of fields of their own",
        post(pooled(query="a", documents=[{"text": "a", "own": "b" * 900}] * MOST), "/v2/rerank"),
        wall_s=20),
    Attack("rerank: 2,048 documents with 150 fields of their own",
        post(pooled(query="a", documents=[{"text": "a", **OWN}] * MOST), "/rerank"), wall_s=20),
    Attack("score: 100,000 empty texts", post(pooled(text_1="a", text_2=[""] * 100_000), "/score"),
        answers=REFUSED),
]  # fmt: skip

BURSTS = [
    Attack("rerank: 8 long queries with 2,048 documents at once",
        burst(pooled(query=LONG, documents=["a"] * MOST), RERANK, count=8), wall_s=20),
    Attack("embeddings: 20 of 2,048 lists with a wrong one at once",
        burst(pooled(input=[[1]] * (MOST - 1) + [[10**9]]), EMBEDDINGS, count=20), wall_s=20),
]  # fmt: skip

ATTACKS = [*PRODUCTS, *INPUTS, *BURSTS]
