"""One generation for each Idempotency-Key: who generates, who joins, and what is kept for later."""
