"""Protocol adapters. Only this package imports FastAPI and pydantic; nothing below knows HTTP."""
