"""An operator finds an answer by two clicks: a link of the README, and a heading that says it."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import HEADING, ROOT, links, prose

# what is asked; the page of the README; the heading, and what stands below it
WAYS = [
    ("which port", "README.md", "Try it", "127.0.0.1:9000"),
    ("another port", "docs/generated/settings.md", "Where the proxy listens", "`PORT`"),
    ("make a key", "docs/access.md", "Make the first keys", "keys create --quick"),
    ("limit a tenant", "docs/limits.md", "Set a limit or a budget", "--limit requests_per_minute"),
    ("set a budget", "docs/limits.md", "Set a limit or a budget", "monthly_budget="),
    ("429", "docs/limits.md", "What a 429 means", "`rate_limit_exceeded`"),
    ("TLS", "docs/access.md", "TLS", "`TLS_CERT_FILE`"),
    ("a model on a GPU", "README.md", "On your GPU", "runtime: tensorrt_llm"),
    ("a Triton that exists", "docs/adopting.md", "Models that others built", "adopt grpc://"),
    ("upgrade", "docs/deployment.md", "Upgrade, go back, restore", "**To upgrade:**"),
    ("metrics", "docs/operations.md", "Metrics", "Scrape `/metrics`"),
    ("tools", "docs/tools.md", "From request to calls", "`tools`"),
    ("images", "docs/api.md", "Images", "image_url"),
]


@pytest.mark.parametrize(("path", "heading", "answer"), [way[1:] for way in WAYS])
def test_an_answer_is_two_clicks_away(path, heading, answer):
    readme, page = ROOT / "README.md", ROOT / path
    assert path == "README.md" or path in {each.partition("#")[0] for each in links(readme)}
    assert heading in HEADING.findall(prose(page))
    after = re.split(rf"^#+ {re.escape(heading)}$", page.read_text(), flags=re.MULTILINE)[1]
    assert answer in re.split(r"^##+ ", after, flags=re.MULTILINE)[0]
