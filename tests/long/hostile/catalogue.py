"""All attacks. Each is data (see attack.Attack); how each is sent stands in the modules beside."""

from __future__ import annotations

from tests.long.hostile import (
    admin_attacks,
    batch_attacks,
    body_attacks,
    choice_attacks,
    connection_attacks,
    decision_attacks,
    key_attacks,
    message_attacks,
    pooled_attacks,
    response_attacks,
    route_attacks,
    schema_attacks,
    sleeping_attacks,
    socket_attacks,
    structured_attacks,
)

GROUPS = {
    "guides": structured_attacks.ATTACKS,
    "schemas": schema_attacks.ATTACKS,
    "choices": choice_attacks.ATTACKS,
    "bodies": body_attacks.ATTACKS,
    "messages": message_attacks.ATTACKS,
    "responses": response_attacks.ATTACKS,
    "pooled": pooled_attacks.ATTACKS,
    "decisions": decision_attacks.ATTACKS,
    "batches": batch_attacks.ATTACKS,
    "routes": route_attacks.ATTACKS,
    "connections": connection_attacks.ATTACKS,
    "asleep": sleeping_attacks.ATTACKS,
    "keys": key_attacks.ATTACKS,
    "administration": admin_attacks.ATTACKS,
    "sockets": socket_attacks.ATTACKS,
}
EVERY = [attack for group in GROUPS.values() for attack in group]
