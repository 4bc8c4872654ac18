"""Descriptions of the OpenAI routes for the OpenAPI document."""
