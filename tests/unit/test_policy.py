"""policy: models.yaml or one folder, with the settings' defaults where a model has none."""

from __future__ import annotations

import pytest

from proxy import policy
from proxy.settings import Settings

MODELS = """\
models:
  said: {weights: w, sampling: {temperature: 0.5, max_tokens: 7}}
  silent: {weights: w}
"""


def test_defaults_hold_where_models_yaml_says_nothing(tmp_path):
    (tmp_path / "models.yaml").write_text(MODELS)
    settings = Settings(
        models_file=tmp_path / "models.yaml", default_temperature=0, default_max_tokens=99
    )
    models = policy.models(settings).models
    said, silent = models["said"].sampling, models["silent"].sampling
    assert (said.temperature, said.max_tokens) == (0.5, 7)
    assert (silent.temperature, silent.max_tokens) == (0, 99)


@pytest.mark.parametrize("temperature", [None, 0.25])
def test_one_folder_has_the_settings_defaults_only(tmp_path, temperature):
    (tmp_path / "config.json").write_text("{}")
    settings = Settings(model_path=tmp_path, model_id="m", default_temperature=temperature)
    assert policy.has_models(settings)
    entry = policy.models(settings).models["m"]
    assert entry.sampling.temperature == temperature
    assert entry.sampling.top_p is None


def test_a_proxy_for_a_remote_triton_needs_no_models(tmp_path):
    assert not policy.has_models(Settings(models_file=tmp_path / "none.yaml"))
