"""Weights -> artifacts/<model>/ -> artifacts/model_repository/. Imports nothing of proxy/."""
