"""What is wrong with a constraint is the caller's field that asked for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from triton_openai.proxy.domain.constraint import Constraint, GuideKind
from triton_openai.proxy.domain.errors import InvalidRequest, InvalidSchema

TOOLS = "tools"
# A constraint's names in the domain and in the tensor contract.
_NAMES = frozenset({"constraint", "guided_decoding_guide", "guided_decoding_guide_type"})


@contextmanager
def blamed(constraint: Constraint | None) -> Iterator[None]:
    """A refusal of the constraint names the caller's field; without one, it is of tools.

    Raises:
        InvalidSchema: in place of a refusal that says what is wrong with a schema.
    """
    try:
        yield
    except InvalidRequest as error:
        if error.param not in _NAMES:
            raise
        field = TOOLS if constraint is None else constraint.field
        error.param = field
        is_schema = constraint is None or constraint.kind is GuideKind.JSON_SCHEMA
        if is_schema and error.code == "invalid_parameter":
            raise InvalidSchema(error.message, param=field) from error
        raise
