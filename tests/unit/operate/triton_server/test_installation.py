"""The secret of the restricted protocols: the operator's, or a new one for each launcher."""

from __future__ import annotations

from proxy.operate.triton_server import installation
from proxy.settings import Settings
from proxy.settings.triton import TRITON_SECRET


def test_each_launcher_makes_its_own_that_the_settings_take():
    one, other = (installation.with_secret(Settings()).triton_secret_value for _ in range(2))
    assert one != other
    assert TRITON_SECRET.fullmatch(one)


def test_the_operators_own_is_kept():
    given = Settings(triton_secret="a-long-enough-secret")
    assert installation.with_secret(given).triton_secret_value == "a-long-enough-secret"
