"""Stand-ins for language models of others on Triton. They run inside a real tritonserver.

Each declares what upstream's declares (tests/upstream/adopted.json) and behaves as upstream's
source says, over an engine of ours in its own process. tests/fixtures/adopted.py writes their
repository.
"""
