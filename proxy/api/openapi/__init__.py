"""Makes the OpenAPI document."""
