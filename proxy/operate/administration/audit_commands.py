"""`triton-openai audit …`"""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="The log of changes and of denied admin calls.")


@app.command("list")
def list_(
    after: Annotated[int, typer.Option(min=0, help="Entries after this number.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 1000,
) -> None:
    """List entries, the oldest first."""
    from proxy.api.admin.admin_answers import audit_body
    from proxy.operate.administration import session

    found = session.use(lambda admin: admin.audit.list(after=after, limit=limit))
    session.show([audit_body(entry) for entry in found])


@app.command()
def verify() -> None:
    """Check that no entry was edited, deleted, moved or cut off; exit with 1 if one was."""
    from proxy.api.admin.admin_answers import verification_body
    from proxy.operate.administration import session

    found = session.use(lambda admin: admin.audit.verify())
    session.show(verification_body(found))
    if not found.ok:
        raise typer.Exit(1)
