"""Live state that proxies share: in memory for one, in Redis or Valkey for several."""
