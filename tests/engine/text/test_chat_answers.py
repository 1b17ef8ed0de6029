"""Which tokens of a conversation are in the loss, by the templates of many models and spans written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from engine.errors import ChatTemplateError
from engine.text.chat.conversations import Message
from engine.text.chat.template import ChatTemplate, load_chat_template
from engine.text.tokenizer import Tokenizer, load_tokenizer
from tests.engine.chat_shapes import CHATS, chat_folder, ids_of
from tests.engine.text.template_shapes import SHAPES
from tests.engine.text.test_chat_template import load as load_marked
from tests.engine.tokenizer_shapes import byte_level

TALK = [
    {"role": "user", "content": "My name is Bob."},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "My password is hunter2, what is my name?"},
    {"role": "assistant", "content": "Bob."},
]


def load(folder: Path, name: str, *, own_tokens: bool = True) -> tuple[Tokenizer, ChatTemplate]:
    shape = SHAPES[name]
    byte_level(shape.bos, shape.eos, *(shape.others if own_tokens else ())).save(str(folder / "tokenizer.json"))
    config = {"bos_token": shape.bos, "eos_token": shape.eos, "chat_template": shape.source}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    template = load_chat_template(folder)
    assert template is not None
    return load_tokenizer(folder), template


def answers(tokenizer: Tokenizer, template: ChatTemplate, messages: list[dict[str, str]], rule: int = 2) -> list[str]:
    """The texts of the runs of tokens in the loss."""
    runs: list[list[str]] = [[]]
    for id, counts in zip(*template.encode_answers(tokenizer, messages, rule), strict=True):
        if counts:
            runs[-1].append(tokenizer.written(id))
        elif runs[-1]:
            runs.append([])
    return ["".join(run).replace("Ġ", " ").replace("Ċ", "\n") for run in runs if run]


@pytest.mark.parametrize("own_tokens", [True, False], ids=["with its tokens", "without its tokens"])
@pytest.mark.parametrize("name", SHAPES)
def test_in_the_loss_are_the_answers_and_what_ends_them(tmp_path: Path, name: str, own_tokens: bool) -> None:
    tokenizer, template = load(tmp_path, name, own_tokens=own_tokens)
    shape = SHAPES[name]
    expected = shape.answers if own_tokens else shape.without or shape.answers
    assert answers(tokenizer, template, TALK) == list(expected)


@pytest.mark.parametrize("name", SHAPES)
def test_nothing_that_a_user_says_is_in_the_loss(tmp_path: Path, name: str) -> None:
    tokenizer, template = load(tmp_path, name, own_tokens=False)
    odd = [{**one, "content": f"{one['content']}\n\n{one['role']}\n"} for one in TALK]
    for talk in (TALK, odd, [*TALK, TALK[0]]):
        learned = "".join(answers(tokenizer, template, talk))
        assert "Hello." in learned
        assert "Bob." in learned.replace("name is Bob.", "")
        assert not {"My", "password", "user"} & set(learned.split())


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("olmo 3", ["<|endoftext|>", "<|im_end|>"]),
        ("gpt-oss", ["<|return|>"]),  # its other end also closes a thought
        ("glm 4.5", ["<|user|>"]),
        ("llama 3 that always opens an answer", ["<|eot_id|>"]),
        ("falcon", []),
    ],
)
def test_a_generation_stops_at_what_ends_an_answer(tmp_path: Path, name: str, ends: list[str]) -> None:
    tokenizer, template = load(tmp_path, name)
    assert [tokenizer.written(id) for id in template.turn_ends(tokenizer)] == ends


def test_the_ids_are_those_of_the_template_and_the_token_that_ends_a_last_answer(tmp_path: Path) -> None:
    tokenizer, template = load(tmp_path, "glm 4.5")
    [end] = template.turn_ends(tokenizer)
    assert template.encode_answers(tokenizer, TALK)[0] == [*ids_of(template, tokenizer, TALK), end]
    assert template.encode_answers(tokenizer, TALK[:3])[0] == ids_of(template, tokenizer, TALK[:3])


def test_what_a_prompt_already_holds_is_not_in_the_loss(tmp_path: Path) -> None:
    tokenizer, template = load(tmp_path, "qwen 3 thinking")
    thought = [TALK[0], {"role": "assistant", "content": "Hello.", "reasoning_content": "Greet."}]
    assert answers(tokenizer, template, thought) == ["Greet.\n</think>\n\nHello.<|im_end|>"]


def test_an_answer_that_comes_first_is_without_its_header(tmp_path: Path) -> None:
    tokenizer, template = load(tmp_path, "chatml")
    assert answers(tokenizer, template, TALK[1:3]) == ["Hello.<|im_end|>"]


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{{ m.content[:-1] }}{{ eos_token }}{% endfor %}",
        "{% for m in messages %}{{ m.content }}{{ m.content }}{{ eos_token }}{% endfor %}",
        "{% for m in messages | reverse %}{{ m.role }}{{ m.content }}{{ eos_token }}{% endfor %}",
        "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}",
    ],
    ids=["cuts a content", "repeats a content", "turns the order round", "counts the messages"],
)
def test_an_answer_that_cannot_be_located_is_refused(tmp_path: Path, source: str) -> None:
    tokenizer, _ = load(tmp_path, "chatml")
    with pytest.raises(ChatTemplateError, match=r"cannot be (located|seen)"):
        ChatTemplate(source, {"eos_token": "</s>"}).encode_answers(tokenizer, TALK)


@pytest.mark.parametrize(
    ("name", "is_same"), [("chatml", True), ("llama 2", True), ("olmo 3", False), ("glm 4.5", False)]
)
def test_the_old_rule_stays_for_trainings_that_began_under_it(tmp_path: Path, name: str, is_same: bool) -> None:
    tokenizer, template = load(tmp_path, name)
    assert (answers(tokenizer, template, TALK, 1) == answers(tokenizer, template, TALK)) == is_same


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
