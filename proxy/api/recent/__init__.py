"""/admin/v1/requests: what the requests that ended last were, and where their time went."""
