"""Logs and metrics of the proxy. Imports domain only."""
