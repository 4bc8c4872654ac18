"""What a client accepts, by its `Accept` and `Accept-Encoding`."""

from __future__ import annotations

import re

from starlette.datastructures import Headers

_WEIGHT = re.compile(r"q=(0(\.\d{0,3})?|1(\.0{0,3})?)")  # RFC 9110, 12.4.2


def weight(headers: Headers, header: str, name: str) -> float:
    """The weight of `name` in the header, without wildcards: 0 where it is missing or refused."""
    found = [0.0]
    for one in ",".join(headers.getlist(header)).lower().split(","):
        what, *parameters = (part.strip() for part in one.split(";"))
        if what == name:
            weights = filter(None, map(_WEIGHT.fullmatch, parameters))
            found.append(next((float(each[1]) for each in weights), 1.0))
    return max(found)
