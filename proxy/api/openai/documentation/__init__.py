"""What the OpenAPI document says about the OpenAI routes."""
