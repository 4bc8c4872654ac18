"""The JSON Schema of models.yaml, for editors.

`python -m build_engines.models_schema` writes it.
"""

from __future__ import annotations

import json
from pathlib import Path

from build_engines.models_file import ModelsFile

PATH = Path(__file__).with_name("models.schema.json")


def text() -> str:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(schema | ModelsFile.model_json_schema(), indent=2) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
