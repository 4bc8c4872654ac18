"""The shipped demo model, for commands that run in a folder without models.yaml.

So `triton-openai serve` works from any folder, and leaves nothing there. Called by `start` and by
the doctor.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from proxy.operate.triton_server import own_artifacts
from proxy.settings import Settings


def settled(settings: Settings) -> Settings:
    """Fills in the shipped models file and the user's data folder, where the settings name neither.

    A models.yaml or an artifacts/ in the working directory is used instead.
    """
    given, update = settings.model_fields_set, dict[str, Any]()
    has_file = settings.models_file.exists()
    if not has_file and settings.model_path is None and "models_file" not in given:
        update["models_file"] = Path(str(resources.files("demo_model") / "models.yaml"))
    if not has_file and not settings.artifacts_dir.exists() and "artifacts_dir" not in given:
        update["artifacts_dir"] = own_artifacts.data_folder() / "artifacts"
    return settings.model_copy(update=update)
