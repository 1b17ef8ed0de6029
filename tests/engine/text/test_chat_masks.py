"""Which tokens of a rendered conversation are answers, next to transformers' own mask."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from engine.text.chat.conversations import Message
from engine.text.chat.template import load_chat_template
from engine.text.tokenizer import load_tokenizer
from tests.engine.chat_shapes import chat_folder

REFUSED = "\0\ufdd0\ufdd1\ufdd2\ufdd3\ufdd4"
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=REFUSED), min_size=1, max_size=12)
MESSAGES = st.lists(st.builds(lambda r, c: {"role": r, "content": c}, st.sampled_from(["user", "assistant"]), TEXT))
CONVERSATIONS = MESSAGES.filter(bool)


@given(CONVERSATIONS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_the_mask_is_that_of_transformers(tmp_path_factory, messages: list[Message]) -> None:
    folder = chat_folder(tmp_path_factory.getbasetemp() / "marked", "marked")
    theirs = AutoTokenizer.from_pretrained(folder).apply_chat_template(
        messages, return_dict=True, return_assistant_tokens_mask=True
    )
    ids, is_answer = load_chat_template(folder).encode_answers(load_tokenizer(folder), messages)
    assert (ids, [int(one) for one in is_answer]) == (theirs["input_ids"], theirs["assistant_masks"])


def test_a_template_without_marks_has_the_same_mask(tmp_path: Path) -> None:
    messages = [
        {"role": role, "content": text}
        for role, text in [("system", ""), ("user", "Hi"), ("assistant", "A\n"), ("user", "?"), ("assistant", "B")]
    ]
    masks = []
    for name in ("chatml", "marked"):
        folder = chat_folder(tmp_path / name, name)
        ids, is_answer = load_chat_template(folder).encode_answers(load_tokenizer(folder), messages)
        masks.append((ids, is_answer.tolist()))
    assert masks[0] == masks[1]
    tokenizer = load_tokenizer(folder)
    answers = [tokenizer.written(id) for id, counts in zip(*masks[0], strict=True) if counts]
    assert answers == ["A", "Ċ", "<|im_end|>", "B", "<|im_end|>"]
