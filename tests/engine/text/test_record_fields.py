"""Of a conversation nothing is dropped in silence: a field is read, says nothing, or is refused by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import CorpusError, NextStep
from engine.text.chat.conversations import as_stored, clean_values, stored_conversation
from engine.text.corpus import Document, ReadOptions, read_documents
from engine.text.import_report import ReadReport

USER, ANSWER = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}
SYSTEM = {"role": "system", "content": "Be brief."}
TALK = {"messages": [USER, ANSWER]}
EARLIER = [{"role": "user", "content": "A?"}, {"role": "assistant", "content": "B."}]


def read(folder: Path, *values: dict[str, Any], report: ReadReport | None = None, **options: Any) -> list[Document]:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in values), encoding="utf-8")
    return list(read_documents(path, ReadOptions(format="chat", **options), report or ReadReport()))


READ: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "a system prompt beside messages": ({**TALK, "system": "Be brief."}, [SYSTEM, USER, ANSWER]),
    "an empty system prompt": ({**TALK, "system": ""}, [USER, ANSWER]),
    "a system prompt that the messages repeat": (
        {"messages": [SYSTEM, USER, ANSWER], "system": "Be brief."},
        [SYSTEM, USER, ANSWER],
    ),
    "a system prompt of ShareGPT": (
        {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}], "system": "Be brief."},
        [SYSTEM, USER, ANSWER],
    ),
    "a system prompt and history of Alpaca": (
        {"instruction": "Hi", "input": "", "output": "Hello", "system": "Be brief.", "history": [["A?", "B."]]},
        [SYSTEM, *EARLIER, USER, ANSWER],
    ),
    "history as JSON": (
        {"prompt": "Hi", "completion": "Hello", "history": '[["A?", "B."]]'},
        [*EARLIER, USER, ANSWER],
    ),
    "messages as JSON": ({"messages": json.dumps([USER, ANSWER])}, [USER, ANSWER]),
    "no tools, as JSON": ({**TALK, "tools": "[]"}, [USER, ANSWER]),
    "roles of other programs": (
        {"conversations": [{"from": "Human", "value": "Hi"}, {"from": "ChatGPT", "value": "Hello"}]},
        [USER, ANSWER],
    ),
    **{
        f"an answer marked {mark}": (
            {"messages": [USER, {**ANSWER, **mark}, USER, ANSWER]},
            [USER, {**ANSWER, "counts": False}, USER, ANSWER],
        )
        for mark in ({"weight": 0}, {"weight": 0.0}, {"train": False}, {"training": False}, {"loss": 0})
    },
    "weights on every message": (
        {"messages": [{**USER, "weight": 0}, {**ANSWER, "weight": 1}], "train": True},
        [USER, ANSWER],
    ),
    "keys that are null": (
        {"messages": [{**USER, "tool_calls": None, "name": None}, {**ANSWER, "weight": None, "name": None}]},
        [USER, ANSWER],
    ),
}


@pytest.mark.parametrize("name", READ)
def test_a_field_that_is_read_stands_in_the_conversation(name: str, tmp_path: Path) -> None:
    record, expected = READ[name]
    (document,) = read(tmp_path, record)
    assert stored_conversation(document.messages or "").messages == expected


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another field": ({**TALK, "rejected": "Go away"}, "“rejected”, which is not read: Go away"),
    "several": ({**TALK, "rejected": "No", "persona": "a sailor"}, r"also “persona”"),
    "a flag": ({**TALK, "label": False}, "“label”"),
    "history that messages do not have": ({**TALK, "history": [["A?", "B."]]}, "“history”"),
    "a field of a message": ({"messages": [USER, {**ANSWER, "reasoning_content": "Hm."}]}, "“reasoning_content”"),
    "an input that the shape does not have": ({**TALK, "input": "2 and 5"}, "“input”"),
    "two system prompts": ({"messages": [SYSTEM, USER, ANSWER], "system": "Be long."}, "different system prompts"),
    "history that is no list of pairs": (
        {"instruction": "Hi", "output": "Hello", "history": ["A?", "B."]},
        "“history” must be a list of pairs",
    ),
    "half a weight": ({"messages": [USER, {**ANSWER, "weight": 0.5}]}, "“weight”: 0.5"),
    "marks that differ": ({"messages": [USER, {**ANSWER, "weight": 1, "train": False}]}, "marks that differ"),
    "a question to learn": ({"messages": [{**USER, "train": True}, ANSWER]}, "only answers are"),
    "no answer to learn": ({"messages": [USER, {**ANSWER, "weight": 0}]}, "Every answer"),
    "a record not to learn": ({**TALK, "train": False}, "not to learn from"),
    "two contents": ({"messages": [USER, {**ANSWER, "value": "Bye"}]}, "“content” and “value”, which differ"),
    "a list of Python": ({"messages": "[{'role': 'user'}]"}, "looks like a list of Python"),
    "tools as JSON": ({**TALK, "tools": '[{"name": "weather"}]'}, "offers tools"),
    "values that are no object": ({**TALK, "chat_template_kwargs": [1]}, "must be an object"),
    "values that would replace messages": ({**TALK, "chat_template_kwargs": {"messages": ["x"]}}, "“messages”"),
    "values that would replace a token": ({**TALK, "chat_template_kwargs": {"eos_token": "x"}}, "“eos_token”"),
    "prompts alone": ({"prompt": "Hi", "completion": " "}, "there is no answer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_any_other_field_with_a_value_is_refused_by_name_and_line(name: str, tmp_path: Path) -> None:
    record, reason = REFUSED[name]
    with pytest.raises(CorpusError, match=reason) as refusal:
        read(tmp_path, record)
    assert refusal.value.line == 1
    assert refusal.value.next_step


def test_fields_that_say_nothing_of_the_words_are_counted_and_named(tmp_path: Path) -> None:
    record = {"id": 7, "prompt_id": "x", "avatarUrl": "y", "source": "z", "score": 0.5, "Unnamed: 0": 1, "num_turns": 1}
    report = ReadReport()
    read(tmp_path, {**TALK, **record, "note": None, "prompt": "Hi"}, report=report)
    assert set(report.fields_not_read) == set(record)
    assert "“source” (1)" in report.fields_text()


SPEAKS = {
    "numeric_answer": 42, "number": 7, "numerator": 1, "num_answer": 42, "numbers": [1, 2], "q_n_a": "Why? So.",
    "system_message": "Be brief.", "last_turn": "And?", "character": "a sailor", "secret_word": "gull", "words": "a b",
    "num_words": "as many as you like", "opposing_views": "No.", "dialogue_state": {"area": "north"},
    "draft_revision": "Hello!", "turns": ["A?", "B."],
}  # fmt: skip
COUNTS = {
    "num_turns": 2, "numTokens": 9, "numwords": 3, "n_chars": 4, "num": 1, "token_count": "12", "answer_length": 2.5,
    "messages_count": 2, "turn": 3, "prompt_tokens": 5, "likes": 0.0, "word_counts": {"user": 1, "assistant": None},
    "tokens": [3, 4], "state": "Ohio", "revision": "main",
}  # fmt: skip


@pytest.mark.parametrize("name", SPEAKS)
def test_a_field_that_only_sounds_like_a_count_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=f"“{name}”, which is not read"):
        read(tmp_path, {**TALK, name: SPEAKS[name]})


@pytest.mark.parametrize("name", COUNTS)
def test_a_count_says_nothing_of_the_words(name: str, tmp_path: Path) -> None:
    report = ReadReport()
    read(tmp_path, {**TALK, name: COUNTS[name]}, report=report)
    assert report.fields_not_read == {name: 1}


@pytest.mark.parametrize(
    "name", ["messages", "padding", "max_length", "self", "tojson", "_x", "a-b", "eos_token", "a\n"]
)
def test_a_record_and_a_request_may_set_the_same_values(name: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="which a record may not"):
        read(tmp_path, {**TALK, "chat_template_kwargs": {name: 1}})
    with pytest.raises(ValueError, match="is not a variable"):
        clean_values({name: 1})


def test_a_field_is_left_out_when_its_name_is_given(tmp_path: Path) -> None:
    report = ReadReport()
    messages = [USER, {**ANSWER, "reasoning_content": "Hm."}]
    record = {"messages": messages, "rejected": "No"}
    (document,) = read(tmp_path, record, report=report, leave_out=("rejected", "reasoning_content"))
    assert stored_conversation(document.messages or "").messages == [USER, ANSWER]
    assert report.fields_not_read == {"rejected": 1, "reasoning_content": 1}


def test_the_step_to_take_is_that_of_the_option(tmp_path: Path) -> None:
    with pytest.raises(CorpusError) as refusal:
        read(tmp_path, {**TALK, "rejected": "No"})
    assert refusal.value.next_step == NextStep.LEAVE_FIELDS_OUT


def test_domain_and_group_are_fields_that_are_read(tmp_path: Path) -> None:
    (document,) = read(tmp_path, {**TALK, "persona": "sailor"}, domain_field="persona")
    assert document.domain == "sailor"


@pytest.mark.parametrize("value", [{"enable_thinking": False, "effort": None}, '{"enable_thinking": false}'])
def test_values_for_the_template_are_stored_with_the_conversation(value: Any, tmp_path: Path) -> None:
    plain, given = read(tmp_path, TALK, {**TALK, "chat_template_kwargs": value})
    conversation = stored_conversation(given.messages or "")
    assert conversation.messages == [USER, ANSWER]
    assert conversation.template_kwargs == {"enable_thinking": False}
    assert plain.id != given.id
    assert stored_conversation(plain.messages or "").template_kwargs == {}


def test_a_conversation_that_a_text_holds_as_json_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    texts = [json.dumps([USER, ANSWER]), '[{"role": "a list of roles"}]', "[a bracket]"]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    report = ReadReport()
    assert [document.text for document in read_documents(path, ReadOptions(skip_bad=True), report)] == texts[1:]
    assert "holds a conversation as JSON" in report.refused[0].reason


def test_conversations_stored_by_earlier_versions_are_the_same_line() -> None:
    assert as_stored([USER, ANSWER]) == json.dumps([USER, ANSWER])


def test_anonymising_keeps_marks_and_values(tmp_path: Path) -> None:
    messages = [USER, {"role": "assistant", "content": "ann@example.org", "weight": 0}, USER, ANSWER]
    record = {"messages": messages, "chat_template_kwargs": {"thinking": True, "to": "ann@example.org"}}
    (document,) = read(tmp_path, record, anonymize=True)
    conversation = stored_conversation(document.messages or "")
    assert conversation.messages[1]["counts"] is False
    assert conversation.template_kwargs["thinking"] is True
    assert "ann@" not in (document.messages or "")
