"""Names of the domain's fields and of tensors -> names of OpenAI's fields. Used in errors."""

from __future__ import annotations

FIELD_NAMES = {
    "choices": "n",
    "log_probs": "logprobs",
    "top_log_probs": "top_logprobs",
    "num_top_log_probs": "top_logprobs",
    "return_log_probs": "logprobs",
    "token_ids": "return_token_ids",
    "log_prob_ids": "return_tokens_as_token_ids",
    "echo_prompt": "echo",
    "prompt_limit": "truncate_prompt_tokens",
    "runtime_top_k": "top_k",
    "runtime_top_p": "top_p",
    "logit_bias_ids": "logit_bias",
    "logit_bias_values": "logit_bias",
    "bad_words_list": "bad_words",
}

# In completions `logprobs` is also the number of alternatives.
COMPLETION_NAMES = {**FIELD_NAMES, "top_log_probs": "logprobs", "num_top_log_probs": "logprobs"}
