"""Requests made from the document of the administration: what it allows is served, else refused."""

from __future__ import annotations

import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from tests.fixtures.own_document import OwnDocument, every_case, without_keys

EXAMPLES = 15
KEY_HEADERS = {"authorization", "x-api-key", "api-key"}  # the client has one of its own
OPERATIONS = [
    ("POST", "/admin/v1/tenants"),
    ("GET", "/admin/v1/tenants"),
    ("GET", "/admin/v1/tenants/{tenant}"),
    ("PATCH", "/admin/v1/tenants/{tenant}"),
    ("DELETE", "/admin/v1/tenants/{tenant}"),
    ("POST", "/admin/v1/keys"),
    ("GET", "/admin/v1/keys"),
    ("GET", "/admin/v1/keys/{key}"),
    ("PATCH", "/admin/v1/keys/{key}"),
    ("POST", "/admin/v1/keys/{key}/rotate"),
    ("POST", "/admin/v1/keys/{key}/revoke"),
    ("GET", "/admin/v1/usage"),
    ("GET", "/v1/usage"),
    ("GET", "/admin/v1/audit"),
    ("GET", "/admin/v1/audit/verify"),
    ("GET", "/admin/v1/endpoints"),
    ("POST", "/admin/v1/endpoints/drain"),
    ("PUT", "/admin/v1/deployments/{model}/weights"),
    ("POST", "/admin/v1/models/{model}/load"),
]
# Refusals of requests that follow the schema, which can say none of these.
UNSAYABLE = (
    "is in the past",
    "is after 'to'",
    "is outside the years",
    "No pool has an endpoint",
    "There is no pool",
    "has no deployment",
    "all weights are 0",
)


@pytest.mark.hypothesis
@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_check_of_schemathesis_passes(proxy, made, method, path, mode):
    load_all_checks()
    key, client = made()["id"], proxy.admin
    document = OwnDocument.of(client, "administration").document
    operation = schemathesis.openapi.from_dict(without_keys(document))[path][method]

    def holds(case) -> None:
        if mode is GenerationMode.POSITIVE and case.path_parameters:
            own = {"tenant": "acme", "key": key, "model": "another"}
            case.path_parameters = {name: own[name] for name in case.path_parameters}
        if mode is GenerationMode.POSITIVE and (method, path) == ("POST", "/admin/v1/keys"):
            case.body["tenant"] = "acme"
        sent = case.as_transport_kwargs(base_url=str(client.base_url))
        made_up = {name for name in sent["headers"] if name.lower() in KEY_HEADERS}
        for name in made_up:
            del sent["headers"][name]
        assert not sent.pop("cookies", None)
        if "data" in sent:  # httpx's name for raw bytes is another
            sent["content"] = sent.pop("data")
        response = client.request(**sent)
        excluded = [positive_data_acceptance, ignored_auth]
        case.validate_response(response, excluded_checks=excluded)
        assert response.status_code < 500
        if mode is GenerationMode.POSITIVE and response.status_code not in (200, 409):
            assert any(words in response.text for words in UNSAYABLE), response.text

    every_case(operation.as_strategy(generation_mode=mode), EXAMPLES, holds)
    assert proxy.admin.get("/admin/v1/audit/verify").json()["problems"] == []
