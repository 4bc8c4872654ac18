"""The families that real chat templates show, by the marks in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.language.syntax.families import REASONING_FAMILIES, TOOL_FAMILIES, in_template

FOLDER = Path(__file__).parents[5] / "shared" / "data" / "chat_templates"
# template, family of tools, family of reasoning
TEMPLATES = [
    ("Apertus-8B-Instruct.jinja", "apertus", "apertus"),
    ("Bielik-11B-v3.0-Instruct.jinja", "hermes", "qwen3"),
    ("ByteDance-Seed-OSS.jinja", "seed_oss", "seed_oss"),
    ("Cohere2MoE.jinja", "cohere", "cohere"),
    ("CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja", "cohere", "cohere"),
    ("GLM-4.7-Flash.jinja", "glm45", "qwen3"),
    ("GigaChat3-10B-A1.8B.jinja", "gigachat3", None),
    ("GigaChat3.1-10B-A1.8B.jinja", "gigachat31", None),
    ("HuggingFaceTB-SmolLM3-3B.jinja", None, "qwen3"),
    ("Kimi-K2-Instruct.jinja", "kimi_k2", None),
    ("Kimi-K3.jinja", "kimi_k3", "kimi_k3"),
    ("LFM2-8B-A1B.jinja", "lfm2", None),
    ("LFM2.5-8B-A1B.jinja", "lfm2", "qwen3"),
    ("LFM2.5-Instruct.jinja", "lfm2", "qwen3"),
    ("MiMo-VL.jinja", "hermes", None),
    ("MiniMax-M1.jinja", "jamba", None),
    ("MiniMax-M2.jinja", "minimax_m2", "qwen3"),
    ("MiniMax-M3.jinja", "minimax_m3", "minimax_m3"),
    ("Mistral-Small-3.2-24B-Instruct-2506.jinja", "mistral", None),
    ("NVIDIA-Nemotron-Nano-v2.jinja", "nemotron_v2", "qwen3"),
    ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", "hermes", None),
    ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja", "hermes", None),
    ("Qwen-QwQ-32B.jinja", "hermes", "qwen3"),
    ("Qwen-Qwen3-0.6B.jinja", "hermes", "qwen3"),
    ("Qwen3-Coder.jinja", "qwen3_coder", None),
    ("Qwen3.5-4B.jinja", "qwen3_coder", "qwen3"),
    ("Reka-Edge.jinja", "hermes", "qwen3"),
    ("StepFun3.5-Flash.jinja", "qwen3_coder", "qwen3"),
    ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja", "deepseek_v3", "qwen3"),
    ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", "deepseek_v3", "qwen3"),
    ("deepseek-ai-DeepSeek-V3.1.jinja", "deepseek_v31", "qwen3"),
    ("deepseek-ai-DeepSeek-V3.2.jinja", "deepseek_v32", "qwen3"),
    ("deepseek-ai-DeepSeek-V4-Flash-0731.jinja", "deepseek_v32", "qwen3"),
    ("deepseek-ai-DeepSeek-V4.jinja", "deepseek_v32", "qwen3"),
    ("fireworks-ai-llama-3-firefunction-v2.jinja", "phi4_mini_json", None),
    ("google-gemma-2-2b-it.jinja", None, None),
    ("google-gemma-4-31B-it-interleaved.jinja", "gemma4", "gemma4"),
    ("ibm-granite-granite-3.3-2B-Instruct.jinja", "granite", "qwen3"),
    ("ibm-granite-granite-4.0.jinja", "hermes", None),
    ("llama-cpp-deepseek-r1.jinja", "deepseek_v3", "qwen3"),
    ("llama-cpp-rwkv-world.jinja", None, "qwen3"),
    ("llm-jp-llm-jp-4.1-8b-thinking.jinja", "harmony", "harmony"),
    ("meetkai-functionary-medium-v3.1.jinja", "qwen3_coder", None),
    ("meetkai-functionary-medium-v3.2.jinja", None, None),
    ("meta-llama-Llama-3.1-8B-Instruct.jinja", "llama3_json", None),
    ("meta-llama-Llama-3.2-3B-Instruct.jinja", "llama3_json", None),
    ("microsoft-Phi-3.5-mini-instruct.jinja", None, None),
    ("mistralai-Ministral-3-14B-Reasoning-2512.jinja", "mistral", "mistral"),
    ("moonshotai-Kimi-K2.jinja", "kimi_k2", None),
    ("openai-gpt-oss-120b.jinja", "harmony", "harmony"),
    ("openbmb-MiniCPM5-1B.jinja", "minicpm5", "qwen3"),
    ("poolside-Laguna-S-2.1.jinja", "glm45", "qwen3"),
    ("poolside-Laguna-XS-2.1.jinja", "glm45", "qwen3"),
    ("poolside-Laguna-XS.2.jinja", "glm45", "qwen3"),
    ("tencent-Hy3.jinja", "hy3", "hy3"),
    ("unsloth-mistral-Devstral-Small-2507.jinja", "mistral", None),
    ("upstage-Solar-Open-100B.jinja", "solar_open", "solar_open"),
    ("vllm__qwen3.jinja", "hermes", "qwen3"),
    ("vllm__qwen35.jinja", "qwen3_coder", "qwen3"),
    ("vllm__step5_vl.jinja", None, "qwen3"),
    ("vllm__tool_chat_template_deepseekr1.jinja", "deepseek_v3", "qwen3"),
    ("vllm__tool_chat_template_deepseekv3.jinja", "deepseek_v3", None),
    ("vllm__tool_chat_template_deepseekv31.jinja", "deepseek_v31", "qwen3"),
    ("vllm__tool_chat_template_functiongemma.jinja", "functiongemma", None),
    ("vllm__tool_chat_template_glm4.jinja", "glm45", None),
    ("vllm__tool_chat_template_granite.jinja", "granite", None),
    ("vllm__tool_chat_template_granite_20b_fc.jinja", "granite_20b_fc", None),
    ("vllm__tool_chat_template_hermes.jinja", "hermes", None),
    ("vllm__tool_chat_template_hunyuan_a13b.jinja", "jamba", "qwen3"),
    ("vllm__tool_chat_template_internlm2_tool.jinja", "internlm", None),
    ("vllm__tool_chat_template_llama3.2_json.jinja", "llama3_json", None),
    ("vllm__tool_chat_template_llama3.2_pythonic.jinja", "pythonic", None),
    ("vllm__tool_chat_template_llama4_json.jinja", "llama4_json", None),
    ("vllm__tool_chat_template_mistral.jinja", "mistral", None),
    ("vllm__tool_chat_template_mistral3.jinja", "mistral", None),
    ("vllm__tool_chat_template_mistral_parallel.jinja", "mistral", None),
    ("vllm__tool_chat_template_muse_glimmer.jinja", "muse_glimmer", "muse_glimmer"),
    ("vllm__tool_chat_template_xlam_llama.jinja", "xlam", None),
    ("vllm__tool_chat_template_xlam_qwen.jinja", "xlam", None),
]


@pytest.mark.parametrize(("name", "tools", "reasoning"), TEMPLATES)
def test_a_template_shows_its_families(name, tools, reasoning):
    if not FOLDER.is_dir():
        pytest.skip("the collection of chat templates is not beside this checkout")
    template = (FOLDER / name).read_text(encoding="utf-8")
    assert in_template(template, TOOL_FAMILIES) == tools
    assert in_template(template, REASONING_FAMILIES) == reasoning
