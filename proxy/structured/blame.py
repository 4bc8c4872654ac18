"""Maps constraint errors to the request field that caused them."""

from __future__ import annotations

from triton_openai.proxy.domain.constraint import Constraint, GuideKind
from triton_openai.proxy.domain.errors import ErrorCode, InvalidRequest, InvalidSchema

TOOLS = "tools"
# A constraint's names in the domain and in the tensor contract.
_NAMES = frozenset({"constraint", "guided_decoding_guide", "guided_decoding_guide_type"})


class Blame:
    """Refusals of a constraint, raised in the `with`, name the caller's field of it.

    Without a constraint of the caller's, the refused guide comes from the tools.

    Raises:
        InvalidSchema: in place of a refusal that says what is wrong with a schema.
    """

    __slots__ = ("_constraint",)

    def __init__(self, constraint: Constraint | None) -> None:
        self._constraint = constraint

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, InvalidRequest) or error.param not in _NAMES:
            return
        constraint = self._constraint
        field = TOOLS if constraint is None else constraint.field
        error.param = field
        is_schema = constraint is None or constraint.kind is GuideKind.JSON_SCHEMA
        if is_schema and error.code is ErrorCode.INVALID_PARAMETER:
            raise InvalidSchema(error.message, param=field) from error
