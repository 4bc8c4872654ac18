"""Streams of NVIDIA's C++ backend with each of its ways, as the facts describe them.

No GPU was there to record them: they are written after model_instance_state.cc and
llmRequest.cpp, and are to be compared with real ones. A prompt's first token chooses one.
"""

from __future__ import annotations

END = 2
LONG_STEPS = 400
MANY = 300

STREAMS = {
    # The end comes in a response without tokens.
    "10": {"responses": [{"ids": [75]}, {"ids": [76]}, {"ids": []}]},
    # Several tokens a response; the last of them is the end token.
    "11": {"responses": [{"ids": [75, 76, 77]}, {"ids": [78, END]}]},
    # Log-probabilities come from the stream's beginning, each time.
    "12": {
        "responses": [
            {"ids": [75], "log_probs": [-0.25]},
            {"ids": [76, 77], "log_probs": [-0.5, -0.75]},
            {"ids": [78], "log_probs": [-1.0]},
            {"ids": []},
        ]
    },
    # An error after tokens; at once, it would overtake them in the ensemble.
    "13": {
        "pause_s": 0.2,
        "responses": [{"ids": [75]}, {"error": "Encountered an error in forward function"}],
    },
    # To the limit: three tokens.
    "14": {"responses": [{"ids": [75, 76]}, {"ids": [77]}]},
    # Long, and slow enough to be stopped.
    "15": {"pause_s": 0.02, "responses": [{"ids": [75 + at % 8]} for at in range(LONG_STEPS)]},
    # Many tokens, faster than the detokenizer answers one at a time.
    "18": {"responses": [{"ids": [75 + at % 8], "log_probs": [-at / 8]} for at in range(MANY)]},
    # Refused before the first token.
    "16": {"responses": [{"error": "Prompt length (5000) exceeds maximum input length (4096)."}]},
    # An answer of nothing.
    "17": {"responses": [{"ids": []}]},
}
