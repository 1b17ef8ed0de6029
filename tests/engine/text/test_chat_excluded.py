"""An answer that its data set excludes is in no loss, and a record's values reach the template, whatever its shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ChatTemplateError
from engine.text.chat.blocks import ChatEncoder, pack_conversations
from engine.text.chat.conversations import as_stored, as_text
from engine.text.chat.template import ChatTemplate
from engine.text.corpus import Document
from engine.text.split import store_documents
from engine.text.tokenizer import Tokenizer, load_tokenizer
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


def test_values_that_no_template_reads_are_counted(tmp_path: Path) -> None:
    tokenizer, template = load(tmp_path, "olmo 3")
    folder = stored(tmp_path, [{"effort": "high"}, {"effort": "low"}, {}])
    encoder = encoder_of(tokenizer, template)
    list(pack_conversations(folder, encoder, tmp_path / "packed", 64))
    facts = json.loads((tmp_path / "packed" / "tokens.json").read_text(encoding="utf-8"))
    assert facts["values_not_read"] == {"effort": 2}


def encoder_of(tokenizer: Tokenizer, template: ChatTemplate) -> ChatEncoder:
    return ChatEncoder(
        tokenizer, "t", lambda one: template.encode_answers(tokenizer, one.messages), unread=template.unread
    )


def stored(folder: Path, values: list[dict[str, Any]]) -> Path:
    (folder / "stored").mkdir()
    talks = [(as_stored(TALK, one), str(number)) for number, one in enumerate(values)]
    list(store_documents((Document(as_text(TALK), None, n, "", line) for line, n in talks), folder / "stored"))
    return folder / "stored" / "0"
