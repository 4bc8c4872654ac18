"""Where a request goes: the endpoints of each pool, their health, and the choice among them."""
