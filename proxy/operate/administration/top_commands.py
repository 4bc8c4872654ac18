"""`triton-openai top`"""

from __future__ import annotations

from typing import Annotated

import typer

from proxy.operate.administration.remote_options import CaFile, KeyFile, Url


def top(
    url: Url = None,
    key_file: KeyFile = None,
    ca_file: CaFile = None,
    interval: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Seconds between two frames.")
    ] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print one frame, after one interval, and exit.")
    ] = False,
) -> None:
    """Show live what a running proxy does: models, endpoints, tenants.

    Into a file or another program, it prints one frame after the other.
    """
    from proxy.operate.administration.remote import remote
    from proxy.operate.live import screen

    show = screen.show_once if once else screen.show
    show(remote(url, key_file, ca_file), interval)
