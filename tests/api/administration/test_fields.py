"""Each field of the table of tenants and keys, through the routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proxy.access.store.tables import as_json
from proxy.domain.account_fields import AccountField
from proxy.domain.key_records import KEY_FIELDS, TENANT_CHANGES, TENANT_FIELDS
from tests.fixtures.account_samples import sample

TENANTS, KEYS = "/admin/v1/tenants", "/admin/v1/keys"
CREATED = [
    (TENANTS, one) for one in TENANT_FIELDS if one.shown.create is not None and one.name != "name"
]
CREATED += [
    (KEYS, one) for one in KEY_FIELDS if one.shown.create is not None and one.name != "tenant"
]
CHANGED = [(TENANTS, one) for one in TENANT_CHANGES if one.shown.change is not None]
CHANGED += [(KEYS, one) for one in KEY_FIELDS if one.shown.change is not None]
Send = Callable[..., Any]


def ids(rows: list[tuple[str, AccountField]]) -> list[str]:
    return [f"{path.rpartition('/')[2]}.{one.name}" for path, one in rows]


@pytest.fixture
def create(proxy) -> Send:
    """create(path, **fields) -> the answer to a new tenant, or to a new key of one."""

    def send(path: str, **fields: object) -> Any:
        proxy.admin.post(TENANTS, json={"name": "acme"})
        own = {"name": "other"} if path == TENANTS else {"tenant": "acme", "name": "a key"}
        return proxy.admin.post(path, json={**own, **fields})

    return send


@pytest.mark.parametrize(("path", "one"), CREATED, ids=ids(CREATED))
def test_what_creates_may_set_it_and_else_it_has_its_default(create, path, one):
    value, _ = sample(one)
    before = create(path).json()
    if one.is_optional or one.kind in (int, float):
        assert before[one.name] == as_json(one.default)
    made = create(path, **{"name": "third", one.name: value})
    assert (made.status_code, made.json()[one.name]) == (200, value)
    wrong = create(path, **{one.name: {"no": "such"}})
    assert wrong.status_code == 400
    assert wrong.json()["error"]["param"].startswith(one.name)


@pytest.mark.parametrize(("path", "one"), CHANGED, ids=ids(CHANGED))
def test_a_change_sets_keeps_and_clears_it(create, proxy, path, one):
    made = create(path).json()
    path = f"{path}/{made.get('id', made['name'])}"
    value, _ = sample(one)
    is_cleared = one.kind is not bool and one.name not in ("name", "scopes")
    for changes, expected in (
        ({one.name: value}, value),
        ({}, value),
        ({one.name: None}, as_json(one.default) if is_cleared else value),
    ):
        answer = proxy.admin.patch(path, json=changes)
        assert (answer.status_code, answer.json()[one.name]) == (200, expected), changes
        assert proxy.admin.get(path).json() == answer.json()
    wrong = proxy.admin.patch(path, json={one.name: {"no": "such"}})
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (400, "invalid_request_error")


def test_a_field_of_no_body_is_refused_by_name(create):
    for path, fields in ((TENANTS, TENANT_FIELDS), (KEYS, KEY_FIELDS)):
        for one in fields:
            if one.shown.create is None:
                refused = create(path, **{one.name: None})
                assert refused.json()["error"]["param"] == one.name
                assert refused.status_code == 400
