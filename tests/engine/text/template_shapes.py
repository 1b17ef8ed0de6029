"""Shapes of chat templates beside those of `chat_shapes`, shortened, each with the model whose files write it so."""

from __future__ import annotations

from typing import NamedTuple

from tests.engine.chat_shapes import CHATML, GEMMA, LLAMA_3, MISTRAL, PHI_3, QWEN, QWEN_3


class Shape(NamedTuple):
    """A template, its special tokens, and what counts of the conversation in `test_chat_answers`.

    `bos` and `eos` are special tokens of every tokenizer; `others` only of the model's own. `without` are the answers
    on a tokenizer that does not have these; empty: the same.
    """

    source: str
    bos: str
    eos: str
    others: tuple[str, ...]
    answers: tuple[str, str]
    without: tuple[str, str] | tuple[()] = ()


_ENDS = "<|im_end|>"
_IM = ("<|im_start|>", _ENDS)
# openai/gpt-oss-20b: a last answer ends otherwise
GPT_OSS = (
    "<|start|>system<|message|>You are ChatGPT.<|end|>{% for message in messages %}{% if message.role == 'assistant' %}"
    "{% if loop.last and not add_generation_prompt %}{% if 'thinking' in message %}"
    "{{ '<|start|>assistant<|channel|>analysis<|message|>' + message.thinking + '<|end|>' }}{% endif %}"
    "{{ '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|return|>' }}{% else %}"
    "{{ '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}{% endif %}"
    "{% elif message.role == 'user' %}{{ '<|start|>user<|message|>' + message.content + '<|end|>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
# allenai/Olmo-3-7B-Instruct: EOS after the last answer alone
OLMO_3 = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content }}"
    "{% if message.role == 'assistant' and loop.last %}{{ eos_token }}{% else %}{{ '<|im_end|>\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# zai-org/GLM-4.5-Air: a turn ends where the next begins
GLM_4_5 = (
    "[gMASK]<sop>{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}{% if m.role == 'user' %}"
    "{{ '<|user|>\n' + m.content }}{% elif m.role == 'assistant' %}{{ '<|assistant|>' }}{% if loop.index0 > ns.last "
    "and m.reasoning_content %}{{ '\n<think>' + m.reasoning_content + '</think>' }}{% else %}{{ '\n<think></think>' }}"
    "{% endif %}{{ '\n' + m.content.strip() }}{% elif m.role == 'system' %}{{ '<|system|>\n' + m.content }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# tatsu-lab/alpaca as TRL's users write it, with EOS after the last answer
ALPACA = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ '### Instruction:\n' + m.content + '\n\n' }}"
    "{% elif m.role == 'assistant' %}{{ '### Response:\n' + m.content }}{% if loop.last %}{{ eos_token }}{% else %}"
    "{{ '\n\n' }}{% endif %}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '### Response:\n' }}{% endif %}"
)
PREAMBLE = "{{ 'Below is an instruction that describes a task.\n\n' }}"
# HuggingFaceH4/zephyr-7b-beta
ZEPHYR = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + eos_token + '\n' }}"
    "{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}"
)
# meta-llama/Llama-2-7b-chat-hf
LLAMA_2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
    "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}"
    "{% endif %}{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}"
    "{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
    "{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
# deepseek-ai/DeepSeek-V3, without tools: system messages come first
DEEPSEEK_V3 = (
    "{% set ns = namespace(system='') %}{% for m in messages %}{% if m['role'] == 'system' %}"
    "{% set ns.system = ns.system + m['content'] %}{% endif %}{% endfor %}{{ bos_token }}{{ ns.system }}"
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ '<|User|>' + m['content'] }}"
    "{% elif m['role'] == 'assistant' %}{{ '<|Assistant|>' + m['content'] + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|Assistant|>' }}{% endif %}"
)
# deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B: the prompt opens a thought, which the text leaves out
DEEPSEEK_R1 = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '<|User|>' + m['content'] }}"
    "{% elif m['role'] == 'assistant' %}{{ '<|Assistant|>' + m['content'].split('</think>')[-1] + eos_token }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|Assistant|><think>\n' }}{% endif %}"
)
# lmsys/vicuna-7b-v1.5
VICUNA = (
    "{{ 'A chat between a curious user and an assistant. ' }}{% for m in messages %}{% if m['role'] == 'user' %}"
    "{{ 'USER: ' + m['content'] + ' ' }}{% elif m['role'] == 'assistant' %}"
    "{{ 'ASSISTANT: ' + m['content'] + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
# CohereForAI/c4ai-command-r-v01
COMMAND_R = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}"
    "{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + m['content'].strip() + '<|END_OF_TURN_TOKEN|>' }}"
    "{% elif m['role'] == 'assistant' %}"
    "{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' + m['content'].strip() + '<|END_OF_TURN_TOKEN|>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}"
)
# allenai/Llama-3.1-Tulu-3-8B
TULU_3 = (
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ '<|user|>\n' + m['content'] + '\n' }}"
    "{% elif m['role'] == 'assistant' %}{% if not loop.last %}{{ '<|assistant|>\n' + m['content'] + eos_token + '\n' }}"
    "{% else %}{{ '<|assistant|>\n' + m['content'] + eos_token }}{% endif %}{% endif %}"
    "{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}"
)
# tiiuae/falcon-7b-instruct: no token ends anything
FALCON = (
    "{% for m in messages %}{% if not loop.first %}{{ '\n' }}{% endif %}{% if m['role'] == 'user' %}"
    "{{ 'User: ' + m['content'].strip() }}{% elif m['role'] == 'assistant' %}{{ 'Falcon: ' + m['content'].strip() }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '\nFalcon:' }}{% endif %}"
)
# Qwen/Qwen3-4B-Thinking-2507: the prompt opens a thought, which only the last answer of the text has
QWEN_3_THINKING = QWEN_3.replace(
    "{{- '<|im_start|>assistant\\n' }}\n{%- endif %}", "{{- '<|im_start|>assistant\\n<think>\\n' }}\n{%- endif %}"
)
# ibm-granite/granite-3.1-2b-instruct
GRANITE = (
    "{% for m in messages %}{% if m['role'] == 'user' %}"
    "{{ '<|start_of_role|>user<|end_of_role|>' + m['content'] + '<|end_of_text|>\n' }}"
    "{% elif m['role'] == 'assistant' %}{{ '<|start_of_role|>assistant<|end_of_role|>' + m['content'] }}"
    "{{ '<|end_of_text|>\n' }}{% endif %}{% if loop.last and add_generation_prompt %}"
    "{{ '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %}{% endfor %}"
)
# openbmb/MiniCPM-2B-sft-bf16, with its turns' names
MINICPM = (
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ '<user>' + m['content'].strip() + '<AI>' }}{% else %}"
    "{{ m['content'].strip() }}{% endif %}{% endfor %}"
)
_LLAMA = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")


def both(end: str) -> tuple[str, str]:
    return "Hello." + end, "Bob." + end


SHAPES = {
    "chatml": Shape(CHATML, "<s>", "</s>", _IM, both(_ENDS), both("<|im_end|>\n")),
    "qwen 2.5": Shape(QWEN, "<s>", "</s>", _IM, both(_ENDS), both("<|im_end|>\n")),
    "qwen 3": Shape(
        QWEN_3,
        "<s>",
        "</s>",
        _IM,
        ("Hello.<|im_end|>", "<think>\n\n</think>\n\nBob.<|im_end|>"),
        ("Hello.<|im_end|>\n", "<think>\n\n</think>\n\nBob.<|im_end|>\n"),
    ),
    "qwen 3 thinking": Shape(
        QWEN_3_THINKING,
        "<s>",
        "</s>",
        _IM,
        ("Hello.<|im_end|>", "\n</think>\n\nBob.<|im_end|>"),
        ("Hello.<|im_end|>\n", "\n</think>\n\nBob.<|im_end|>\n"),
    ),
    "llama 2": Shape(LLAMA_2, "<s>", "</s>", (), (" Hello. </s>", " Bob. </s>")),
    "llama 3": Shape(LLAMA_3, "<|begin_of_text|>", "<|end_of_text|>", _LLAMA, both("<|eot_id|>"), both("<|eot_id|>")),
    "llama 3 that always opens an answer": Shape(
        LLAMA_3.replace("{% if add_generation_prompt %}", "{% if true %}"),
        "<|begin_of_text|>",
        "<|end_of_text|>",
        _LLAMA,
        both("<|eot_id|>"),
        both("<|eot_id|>"),
    ),
    "gemma": Shape(
        GEMMA,
        "<bos>",
        "<eos>",
        ("<start_of_turn>", "<end_of_turn>"),
        both("<end_of_turn>"),
        both("<end_of_turn>\n"),
    ),
    "mistral": Shape(MISTRAL, "<s>", "</s>", (), both("</s>")),
    "phi 3": Shape(
        PHI_3,
        "<s>",
        "<|endoftext|>",
        ("<|user|>", "<|assistant|>", "<|system|>", "<|end|>"),
        both("<|end|>"),
        ("Hello.<|end|>\n", "Bob.<|end|>\n<|endoftext|>"),
    ),
    "gpt-oss": Shape(
        GPT_OSS,
        "<|startoftext|>",
        "<|return|>",
        ("<|start|>", "<|end|>", "<|message|>", "<|channel|>"),
        ("<|channel|>final<|message|>Hello.<|end|>", "<|channel|>final<|message|>Bob.<|return|>"),
    ),
    "olmo 3": Shape(
        OLMO_3,
        "<s>",
        "<|endoftext|>",
        _IM,
        ("Hello.<|im_end|>", "Bob.<|endoftext|>"),
        ("Hello.<|im_end|>\n", "Bob.<|endoftext|>"),
    ),
    "glm 4.5": Shape(
        GLM_4_5,
        "<s>",
        "<|endoftext|>",
        ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>"),
        ("\n<think></think>\nHello.<|user|>", "\n<think></think>\nBob.<|user|>"),
        ("\n<think></think>\nHello.", "\n<think></think>\nBob."),
    ),
    "alpaca": Shape(ALPACA, "<s>", "</s>", (), ("Hello.\n\n", "Bob.</s>")),
    "alpaca with a preamble": Shape(PREAMBLE + ALPACA, "<s>", "</s>", (), ("Hello.\n\n", "Bob.</s>")),
    "alpaca without an end": Shape(ALPACA.replace("{{ eos_token }}", ""), "<s>", "</s>", (), ("Hello.\n\n", "Bob.")),
    "zephyr": Shape(ZEPHYR, "<s>", "</s>", (), both("</s>")),
    "deepseek v3": Shape(DEEPSEEK_V3, "<bos>", "<eos>", ("<|User|>", "<|Assistant|>"), both("<eos>")),
    "deepseek r1": Shape(DEEPSEEK_R1, "<bos>", "<eos>", ("<|User|>", "<|Assistant|>"), both("<eos>")),
    "vicuna": Shape(VICUNA, "<s>", "</s>", (), (" Hello.</s>", " Bob.</s>")),
    "command r": Shape(
        COMMAND_R,
        "<BOS_TOKEN>",
        "<EOS_TOKEN>",
        ("<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        both("<|END_OF_TURN_TOKEN|>"),
    ),
    "tulu 3": Shape(TULU_3, "<s>", "<|end_of_text|>", ("<|user|>", "<|assistant|>"), both("<|end_of_text|>")),
    "falcon": Shape(FALCON, "<s>", "<|endoftext|>", (), (" Hello.\n", " Bob.")),
    "granite": Shape(
        GRANITE,
        "<s>",
        "</s>",
        ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"),
        both("<|end_of_text|>"),
        both("<|end_of_text|>\n"),
    ),
    "minicpm": Shape(MINICPM, "<s>", "</s>", ("<user>", "<AI>"), both("<user>"), both("")),
}
