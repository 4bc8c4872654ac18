"""Protocol adapters: the only importer of FastAPI and pydantic. Nothing behind them knows HTTP."""
