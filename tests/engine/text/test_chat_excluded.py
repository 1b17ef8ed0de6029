"""An answer that its data set excludes is in no loss, and a record's values reach the template, whatever its shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.errors import ChatTemplateError
from engine.text.chat.template import ChatTemplate
from engine.text.tokenizer import load_tokenizer
from tests.engine.chat_shapes import CHATS, chat_folder
from tests.engine.text.template_shapes import SHAPES
from tests.engine.text.test_chat_answers import TALK, answers, load
from tests.engine.text.test_chat_template import load as load_marked

WRONG: dict[str, Any] = {**TALK[1], "counts": False}
THINKS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if not enable_thinking %}<think></think>{% endif %}"
)


@pytest.mark.parametrize("name", SHAPES)
def test_an_excluded_answer_is_in_no_loss_and_the_ids_stay_the_same(tmp_path: Path, name: str) -> None:
    tokenizer, template = load(tmp_path, name)

    learned = answers(tokenizer, template, [TALK[0], WRONG, *TALK[2:]])

    assert learned == answers(tokenizer, template, TALK)[1:]
    ids = template.encode_answers(tokenizer, [TALK[0], WRONG, *TALK[2:]])[0]
    assert ids == template.encode_answers(tokenizer, TALK)[0]


@pytest.mark.parametrize("name", SHAPES)
def test_an_excluded_last_answer_is_in_no_loss_either(tmp_path: Path, name: str) -> None:
    tokenizer, template = load(tmp_path, name)
    last = {**TALK[3], "counts": False}
    assert answers(tokenizer, template, [*TALK[:3], last]) == answers(tokenizer, template, TALK)[:1]


def test_an_excluded_answer_is_in_no_loss_where_the_template_marks_answers(tmp_path: Path) -> None:
    tokenizer, template = load_marked(tmp_path, "marked")
    assert "marked" in CHATS
    assert answers(tokenizer, template, [TALK[0], WRONG, *TALK[2:]]) == answers(tokenizer, template, TALK)[1:]


def test_a_template_that_marks_other_spans_cannot_exclude_one(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(chat_folder(tmp_path, "qwen"))
    source = "{% generation %}{% for m in messages %}{{ m.content }}{% endfor %}{% endgeneration %}"
    with pytest.raises(ChatTemplateError, match="does not mark each answer once"):
        ChatTemplate(source, {}).encode_answers(tokenizer, [TALK[0], WRONG, *TALK[2:]])


def test_values_of_a_record_reach_the_template(tmp_path: Path) -> None:
    template = ChatTemplate(THINKS, {})
    assert template.render(TALK).endswith("<think></think>")
    assert not template.with_values({"enable_thinking": True}).render(TALK).endswith("<think></think>")
    assert template.unread(["enable_thinking", "effort"]) == ["effort"]
    assert template.with_values({}) is template
