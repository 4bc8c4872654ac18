"""`triton-openai queue`"""

from __future__ import annotations

from proxy.operate.administration.remote_options import AsJson, CaFile, KeyFile, Url


def queue(
    url: Url = None, key_file: KeyFile = None, ca_file: CaFile = None, as_json: AsJson = False
) -> None:
    """Show who runs and who waits in each model's queue of a running proxy."""
    from proxy.operate.administration import pool_tables, remote_options
    from proxy.operate.administration.remote import remote

    answer = remote(url, key_file, ca_file).call("GET", "/admin/v1/queues")
    remote_options.show(answer, pool_tables.show_queues, as_json=as_json)
