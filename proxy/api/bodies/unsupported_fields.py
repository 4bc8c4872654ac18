"""Fields of OpenAI's and similar APIs that this server refuses, and what to use instead.

Used by `validation_errors`.
"""

from __future__ import annotations

ADVICE = {
    "functions": "it is deprecated, use 'tools'",
    "function_call": "it is deprecated, use 'tool_choice'",
    "audio": "answers are text only",
    "web_search_options": "it has no web search; offer one of yours in 'tools'",
    "moderation": "moderate the text in your application",
    "prompt_cache_retention": "prefixes are cached as long as there is memory",
    "prompt_cache_options": "prefixes are cached without it; 'cache_salt' keeps them apart",
    "thinking": "use 'reasoning_effort', or 'chat_template_kwargs'",
    "chat_template_args": "use 'chat_template_kwargs'",
    "enable_thinking": "use 'reasoning_effort', or 'chat_template_kwargs'",
    "reasoning": "use 'reasoning_effort', or 'chat_template_kwargs'",
    "stop_regex": "use 'stop' with the strings themselves",
    "no_stop_trim": "use 'include_stop_str_in_output'",
    "repeat_penalty": "use 'repetition_penalty'",
    "max_new_tokens": "use 'max_tokens'",
    "n_predict": "use 'max_tokens'",
    "use_beam_search": "use 'n', or 'best_of' of /v1/completions",
    "length_penalty": "there is no beam search",
    "early_stopping": "there is no beam search",
    "logits_processors": "use 'logit_bias', 'allowed_token_ids' or 'bad_words'",
    "custom_logit_processor": "use 'logit_bias', 'allowed_token_ids' or 'bad_words'",
    "prompt_logprobs": "use 'echo' with 'logprobs' of /v1/completions",
    "prompt_embeds": "send text or token ids",
    "input_ids": "use 'prompt_token_ids'",
    "mm_processor_kwargs": "prompts are text only",
    "rid": "use 'request_id'",
    "extra_key": "use 'cache_salt'",
    "lora_path": "give the adapter's name in 'model', as /v1/models lists it",
    "lora_request": "give the adapter's name in 'model', as /v1/models lists it",
    "repetition_detection": "use 'repetition_penalty' or 'frequency_penalty'",
    "session_control": "cached prefixes are found without it",
    "nvext.backend_instance_id": "the server chooses the worker",
    "nvext.prefill_worker_id": "the server chooses the worker",
    "nvext.decode_worker_id": "the server chooses the worker",
    "nvext.dp_rank": "the server chooses the worker",
    "nvext.prefill_dp_rank": "the server chooses the worker",
    "nvext.session_control": "cached prefixes are found without it",
    "nvext.agent_hints.strict_priority": "use 'nvext.agent_hints.priority'",
}
