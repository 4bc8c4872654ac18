"""Upstream's speculative_config up to 1.2: an object, which from_dict makes of a dict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict


class DecodingBaseConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")

    max_draft_len: int | None = None
    speculative_model_dir: str | Path | None = None

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> DecodingBaseConfig:
        kinds = {
            "MTP": MTPDecodingConfig,
            "Eagle": EagleDecodingConfig,
            "Lookahead": LookaheadDecodingConfig,
            "NGram": NGramDecodingConfig,
            "DraftTarget": DraftTargetDecodingConfig,
        }
        kind = kinds.get(data.get("decoding_type", ""))
        if kind is None:
            raise ValueError(f"Invalid decoding type: {data.get('decoding_type')}")
        data.pop("decoding_type")
        return kind(**data)


class EagleDecodingConfig(DecodingBaseConfig):
    eagle3_one_model: bool | None = True


class DraftTargetDecodingConfig(DecodingBaseConfig): ...


class MTPDecodingConfig(DecodingBaseConfig):
    num_nextn_predict_layers: int = 1


class NGramDecodingConfig(DecodingBaseConfig):
    max_matching_ngram_size: int = 0


class LookaheadDecodingConfig(DecodingBaseConfig):
    max_window_size: int = 4
    max_ngram_size: int = 3
    max_verification_set_size: int = 4
