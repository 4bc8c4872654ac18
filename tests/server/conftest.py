"""OpenAI's SDK in front of the running stack."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.fixtures.stack import Stack


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0) as made:
        yield made
