"""Every route of the application has an attack in tests/long/hostile."""

from __future__ import annotations

from proxy.api.http import route_scopes
from proxy.api.http.route_scopes import ROUTES
from tests.fixtures.application import application, operations
from tests.long.hostile.catalogue import EVERY

ATTACKED = {route for attack in EVERY for route in attack.routes}
LISTED = {path for path in ROUTES if path == "/" or not path.endswith("/")}
BELOW = tuple(route for route in ATTACKED if route.endswith("/") and route != "/")


def missing(routes: set[str]) -> set[str]:
    return {one for one in routes - ATTACKED if not one.startswith(BELOW)}


def test_every_route_has_an_attack():
    app = application(operations=operations("127.0.0.1:1"))
    served = set(route_scopes.paths(app.routes))
    assert "/v2/models/{model}/infer" in served
    assert "/admin/v1/endpoints" in served
    # LISTED has those that a store serves, too: no application starts with a route beside it
    assert not missing(served | LISTED)


def test_a_new_route_is_missed():
    assert missing({"/v1/new", "/admin/v1/new"}) == {"/v1/new"}


def test_attacks_are_of_routes_that_exist():
    app = application(operations=operations("127.0.0.1:1"))
    known = set(route_scopes.paths(app.routes)) | LISTED
    assert ATTACKED - known <= set(BELOW)
