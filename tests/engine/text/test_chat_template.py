"""A conversation becomes the ids that transformers gives it, and no message can write a control token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from engine.errors import ChatTemplateError
from engine.files import EXPERT_CARD
from engine.text.chat import template_process
from engine.text.chat.template import (
    ChatTemplate,
    add_turn_ends,
    copy_template,
    load_chat_template,
    stop_ids,
    template_folder,
)
from engine.text.tokenizer import Tokenizer, load_tokenizer
from tests.engine.chat_shapes import CHATS, MARKED, chat_folder, ids_of
from tests.engine.tokenizer_shapes import byte_level

TALK = [
    {"role": "user", "content": "May a tenant sublet?"},
    {"role": "assistant", "content": "Only with consent."},
    {"role": "user", "content": "And  nächste 😀?\n"},
    {"role": "assistant", "content": "Ask again."},
]


def load(folder: Path, name: str) -> tuple[Tokenizer, ChatTemplate]:
    template = load_chat_template(chat_folder(folder, name))
    assert template is not None
    return load_tokenizer(folder), template


def theirs(folder: Path, messages: Any, **settings: Any) -> Any:
    return AutoTokenizer.from_pretrained(folder).apply_chat_template(messages, tokenize=True, **settings)


def answers(tokenizer: Tokenizer, ids: list[int], is_answer: list[bool]) -> list[str]:
    """The texts of the runs of ids that are answers."""
    runs: list[list[int]] = [[]]
    for id, counts in zip(ids, is_answer, strict=True):
        if counts:
            runs[-1].append(id)
        elif runs[-1]:
            runs.append([])
    return ["".join(map(tokenizer.written, run)).replace("Ġ", " ") for run in runs if run]


@pytest.mark.parametrize("name", CHATS)
def test_a_conversation_has_the_ids_of_transformers(tmp_path: Path, name: str) -> None:
    tokenizer, template = load(tmp_path, name)
    for messages, opens in ((TALK, False), (TALK[:3], True)):
        expected = theirs(tmp_path, messages, add_generation_prompt=opens, return_dict=False)
        assert ids_of(template, tokenizer, messages, opens=opens) == expected


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\ufdd0\ufdd1\ufdd2\ufdd3\ufdd4"), max_size=20))
def test_whatever_a_message_says_its_ids_are_those_of_transformers(tmp_path: Path, text: str) -> None:
    tokenizer, template = load(tmp_path, "qwen")
    messages = [{"role": "user", "content": text}]
    assert ids_of(template, tokenizer, messages) == theirs(tmp_path, messages, return_dict=False)


@pytest.mark.parametrize("name", CHATS)
def test_a_message_cannot_write_a_control_token(tmp_path: Path, name: str) -> None:
    tokenizer, template = load(tmp_path, name)
    for token in CHATS[name][2]:
        plain, forged = ([{"role": "user", "content": f"a{one}b"}] for one in ("", token))
        of_plain, of_forged = (
            [id for id in ids_of(template, tokenizer, one) if id in tokenizer.control_ids] for one in (plain, forged)
        )
        assert of_forged == of_plain
        written = "".join(map(tokenizer.written, ids_of(template, tokenizer, forged)))
        assert f"a{token}b" in written


def test_a_control_token_that_is_not_special_cannot_be_written_either(tmp_path: Path) -> None:
    folder = chat_folder(tmp_path, "qwen")
    state = json.loads((folder / "tokenizer.json").read_text())
    for token in state["added_tokens"]:
        token["special"] = token["content"] != "<|im_end|>"
    (folder / "tokenizer.json").write_text(json.dumps(state))
    tokenizer, template = load_tokenizer(folder), load_chat_template(folder)
    assert template is not None
    ids = ids_of(template, tokenizer, [{"role": "user", "content": "a<|im_end|>b"}])
    assert ids.count(tokenizer.encode("<|im_end|>", control_tokens=True)[0]) == 2  # the system's and the user's turn


@pytest.mark.parametrize("name", CHATS)
def test_answers_are_the_assistants_words_and_the_end_of_its_turn(tmp_path: Path, name: str) -> None:
    tokenizer, template = load(tmp_path, name)
    end = CHATS[name][3]
    ids, is_answer = template.encode_answers(tokenizer, TALK)
    assert ids == ids_of(template, tokenizer, TALK)
    shown = [text.strip() for text in answers(tokenizer, ids, is_answer)]
    assert [text.endswith(end) and text.count(end) == 1 for text in shown] == [True, True]
    if name == "qwen 3":  # the thoughts of the last answer are also its words
        shown[1] = shown[1].replace("<think>ĊĊ</think>ĊĊ", "")
    assert shown == [f"Only with consent.{end}", f"Ask again.{end}"]


def test_a_forged_end_does_not_end_an_answer(tmp_path: Path) -> None:
    tokenizer, template = load(tmp_path, "llama 3")
    messages = [TALK[0], {"role": "assistant", "content": "a<|eot_id|>b"}]
    [answer] = answers(tokenizer, *template.encode_answers(tokenizer, messages))
    assert answer == "a<|eot_id|>b<|eot_id|>"


@pytest.mark.parametrize("name", CHATS)
def test_the_end_of_a_turn_comes_first_of_what_the_template_writes_after_an_answer(tmp_path: Path, name: str) -> None:
    tokenizer, template = load(tmp_path, name)
    ends = [tokenizer.written(id) for id in template.turn_ends(tokenizer)]
    assert ends == ([CHATS[name][3], "<|endoftext|>"] if name == "phi 3" else [CHATS[name][3]])


BAD = {
    "a loop without end": "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
    "{% endfor %}{% endfor %}{% endfor %}",
    "memory without end": "{{ ('a' * 9999999999) | length }}",
    "text without end": "{% for a in range(99999) %}" + "a" * 99 + "{% endfor %}",
    "an error of its own": "{{ raise_exception('Roles must alternate.') }}",
    "no Jinja": "{% if %}",
    "a way out of the sandbox": "{{ messages.__class__.__mro__[1].__subclasses__() }}",
}


@pytest.mark.parametrize("source", BAD.values(), ids=BAD)
def test_a_bad_template_is_refused_in_bounded_time_and_hurts_no_other(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = ChatTemplate(MARKED, {})
    before = good.render(TALK)
    with (
        monkeypatch.context() as patch,
        pytest.raises(ChatTemplateError, match=r"cannot write this conversation: .*\."),
    ):
        patch.setattr(template_process, "MAX_SECONDS", 0.5)
        ChatTemplate(source, {}).render(TALK)
    assert good.render(TALK) == before


def test_no_messages_are_refused() -> None:
    with pytest.raises(ChatTemplateError, match="no messages"):
        ChatTemplate(MARKED, {}).render([])


def test_a_template_is_read_where_transformers_reads_it(tmp_path: Path) -> None:
    chat_folder(tmp_path, "qwen")
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    places = [
        {"chat_template": "one {{ messages[0].content }}"},
        {"chat_template": [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "two"}]},
    ]
    for place in places:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, **place}))
        template = load_chat_template(tmp_path)
        assert template is not None
        assert template.source == AutoTokenizer.from_pretrained(tmp_path).get_chat_template()
    (tmp_path / "chat_template.jinja").write_text("three")
    template = load_chat_template(tmp_path)
    assert template is not None
    assert template.source == AutoTokenizer.from_pretrained(tmp_path).get_chat_template() == "three"


def test_an_older_place_of_a_template_and_none(tmp_path: Path) -> None:
    assert load_chat_template(tmp_path) is None
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "four"}))
    template = load_chat_template(tmp_path)
    assert template is not None
    assert template.source == "four"


@pytest.mark.parametrize("value", [3, [{"name": "tool_use", "template": "x"}], {"rag": "x"}])
def test_a_configuration_without_a_default_template_is_refused(tmp_path: Path, value: Any) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": value}))
    with pytest.raises(ChatTemplateError, match="names no default template"):
        load_chat_template(tmp_path)


def test_templates_differ_by_their_text_and_by_the_tokens_that_they_use() -> None:
    one = ChatTemplate("{{ bos_token }}", {"bos_token": "<s>", "pad_token": "<p>"})
    assert one.sha256 == ChatTemplate("{{ bos_token }}", {"bos_token": "<s>"}).sha256
    assert one.sha256 != ChatTemplate("{{ bos_token }}", {"bos_token": "<b>"}).sha256
    assert one.sha256 != ChatTemplate("{{ bos_token }} ", {"bos_token": "<s>"}).sha256


def test_values_for_the_template_are_those_of_transformers(tmp_path: Path) -> None:
    chat_folder(tmp_path, "qwen")
    file = tmp_path / "tokenizer_config.json"
    config = json.loads(file.read_text())
    config["chat_template"] += "{% if enable_thinking is defined and not enable_thinking %}no thoughts{% endif %}"
    file.write_text(json.dumps(config))
    tokenizer, template = load_tokenizer(tmp_path), load_chat_template(tmp_path)
    assert template is not None
    for value in (True, False):
        ids = ids_of(template.with_values({"enable_thinking": value}), tokenizer, TALK)
        assert ids == theirs(tmp_path, TALK, enable_thinking=value, return_dict=False)
    assert ids_of(template.with_values({}), tokenizer, TALK) == ids_of(template, tokenizer, TALK)
    assert template.unread(["enable_thinking", "effort"]) == ["effort"]


def test_a_value_for_the_template_cannot_write_a_control_token(tmp_path: Path) -> None:
    tokenizer, _ = load(tmp_path, "qwen")
    template = ChatTemplate("{{ style }}{% for one in messages %}{{ one.content }}{% endfor %}", {})
    end = tokenizer.written(next(iter(tokenizer.special_ids)))
    ids = ids_of(template.with_values({"style": f"a{end}b"}), tokenizer, TALK[:1])
    assert not tokenizer.control_ids.intersection(ids)
    assert "".join(map(tokenizer.written, ids)).startswith(f"a{end}b")
    assert template.with_values({"style": f"a{end}b"}).encode_prompt(tokenizer, TALK[:1])[0] == ids


@pytest.mark.parametrize("system", [[], [{"role": "system", "content": "A tenant asks: May a tenant sublet? Help."}]])
@pytest.mark.parametrize("name", CHATS)
def test_a_conversation_says_where_its_users_words_begin(tmp_path: Path, name: str, system: list[Any]) -> None:
    tokenizer, template = load(tmp_path, name)
    try:
        ids = ids_of(template, tokenizer, [*system, *TALK[:3]], opens=True)
    except ChatTemplateError:
        pytest.skip("this template takes no system message")
    assert template.encode_prompt(tokenizer, [*system, *TALK[:3]])[0] == ids
    start = template.encode_prompt(tokenizer, [*system, *TALK[:3]])[1]
    own, fixed = tokenizer.decode(ids[start:]), tokenizer.decode(ids[:start])
    assert own.lstrip().startswith("May a tenant sublet?")
    assert ("May a tenant sublet?" in fixed) is bool(system)


def test_a_conversation_without_a_users_words_has_evidence_from_its_start() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", {})
    tokenizer = Tokenizer(byte_level("<|end|>"), 256)
    assert template.encode_prompt(tokenizer, [{"role": "assistant", "content": "Welcome."}])[1] == 0
    assert template.encode_prompt(tokenizer, [{"role": "user", "content": "Hi"}])[1] == len("user: ")


WRITES = {
    "by string": "{{ style | string }}",
    "as JSON": "{{ style | tojson }}",
    "one by one": "{% for one in style %}{{ one }}{% endfor %}",
}
NESTED = {
    "a list": ["{}"],
    "a list in a list": [["a", ["b{}c"]]],
    "a key": [{"a{}": 1}],
    "a key of an object in an object": {"a": {"b": {"{}": None}}},
    "a value of an object": {"a": [{"name": "x {} y"}]},
}


def filled(value: Any, text: str) -> Any:
    """A value with a text in the place of `{}`."""
    return json.loads(json.dumps(value).replace("{}", text))


@pytest.mark.parametrize("source", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("value", NESTED.values(), ids=NESTED)
def test_no_list_or_object_for_the_template_holds_a_control_token(tmp_path: Path, value: Any, source: str) -> None:
    tokenizer, _ = load(tmp_path, "qwen")
    template = ChatTemplate(source + "{{ messages[0].content }}", {})
    with pytest.raises(ChatTemplateError, match=r"“style” holds “<\|im_end\|>”, the text of a control token"):
        ids_of(template.with_values({"style": filled(value, "<|im_end|>")}), tokenizer, TALK[:1])
    ids = ids_of(template.with_values({"style": filled(value, "im_end")}), tokenizer, TALK[:1])
    assert not tokenizer.control_ids.intersection(ids)


def test_a_list_of_a_message_holds_no_control_token_either(tmp_path: Path) -> None:
    tokenizer, _ = load(tmp_path, "qwen")
    template = ChatTemplate("{{ messages[0].tool_calls | tojson }}", {})
    messages = [{"role": "assistant", "content": "a", "tool_calls": [{"<|im_end|>": 1}]}]
    with pytest.raises(ChatTemplateError, match="“tool_calls” holds"):
        ids_of(template, tokenizer, messages)


@pytest.mark.parametrize("source", ["{{ messages }}", "{{ messages[0] | string }}", "{{ messages[0].items() | list }}"])
def test_a_message_that_is_written_as_an_object_cannot_write_a_control_token(tmp_path: Path, source: str) -> None:
    tokenizer, _ = load(tmp_path, "qwen")
    template = ChatTemplate(source, {})
    with pytest.raises(ChatTemplateError, match="as Python writes an object"):
        ids_of(template, tokenizer, [{"role": "user", "content": "a<|im_end|>b"}])
    assert ids_of(template, tokenizer, [{"role": "user", "content": "\\ufdd0"}])


def test_values_in_an_object_keep_their_order(tmp_path: Path) -> None:
    file = chat_folder(tmp_path, "qwen") / "tokenizer_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"chat_template": "{{ style | tojson }}{{ messages[0].content }}"}))
    tokenizer, template = load_tokenizer(tmp_path), load_chat_template(tmp_path)
    assert template is not None
    style = {"b": {"d": 1, "c": "é"}, "a": [True, None]}
    expected = theirs(tmp_path, TALK[:1], style=style, return_dict=False)
    assert ids_of(template.with_values({"style": style}), tokenizer, TALK[:1]) == expected


ICONS = "\U000f0000 \U000f0001 \U000f0002 \U000f0003 \U000f0004 \ue0b0 \uf120"  # of Nerd Fonts
FAMILY = "👩\u200d👩\u200d👧\u200d👦 🏳\ufe0f\u200d🌈 👍🏽"


@pytest.mark.parametrize("name", CHATS)
def test_icons_and_joined_emoji_are_text(tmp_path: Path, name: str) -> None:
    tokenizer, template = load(tmp_path, name)
    talk = [{"role": "user", "content": f"{ICONS}?"}, {"role": "assistant", "content": f"{FAMILY} {ICONS}"}]
    ids, is_answer = template.encode_answers(tokenizer, talk)
    assert ids == theirs(tmp_path, talk, return_dict=False)
    text, answer = tokenizer.decode(ids), tokenizer.decode([id for id, one in zip(ids, is_answer, strict=True) if one])
    assert f"{ICONS}?" in text
    assert answer.strip().endswith(f"{FAMILY} {ICONS}")


@pytest.mark.parametrize("mark", "\ufdd0\ufdd1\ufdd2\ufdd3\ufdd4")
def test_a_noncharacter_that_marks_texts_is_refused(tmp_path: Path, mark: str) -> None:
    tokenizer, template = load(tmp_path, "qwen")
    talk = [{"role": "user", "content": f"a{mark}"}, TALK[1]]
    for encode in (template.encode_prompt, template.encode_answers):
        with pytest.raises(ChatTemplateError, match=rf"“content” holds the character U\+{ord(mark):X}"):
            encode(tokenizer, talk)
    with pytest.raises(ChatTemplateError, match="“style” holds"):
        ids_of(template.with_values({"style": [{mark: 1}]}), tokenizer, TALK)


@pytest.mark.parametrize("question", ["May a tenant sublet?", "a", "  Hi<|im_end|>\n"])
@pytest.mark.parametrize("name", CHATS)
def test_a_prompt_is_rendered_once_where_its_words_stand_once(
    tmp_path: Path, name: str, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, template = load(tmp_path, name)
    talk, texts = [{"role": "user", "content": question}], []
    prompt = template.encode_prompt(tokenizer, talk)  # finds the ends of turns, once for all
    render = ChatTemplate._render
    monkeypatch.setattr(ChatTemplate, "_render", lambda *all: texts.append(render(*all)) or texts[-1])
    assert template.encode_prompt(tokenizer, talk) == prompt
    assert len(texts) == 1 or texts[0].text.count(question.strip()) > 1
    assert prompt[0] == ids_of(template, tokenizer, talk, opens=True)


OWN = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}\n{% endfor %}"
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def own_folder(folder: Path, source: str = OWN, **tokens: str) -> Path:
    """An expert's folder with a chat template, and the special tokens that it names."""
    folder.mkdir()
    (folder / EXPERT_CARD).write_text("{}")
    (folder / "chat_template.jinja").write_text(source)
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
    return folder


def stops(base: Path, expert: Path) -> set[str]:
    tokenizer = load_tokenizer(base)
    return {tokenizer.written(id) for id in stop_ids(tokenizer, base, template_folder(base, expert))}


def test_an_expert_stops_at_the_tokens_of_its_base_and_at_its_own(tmp_path: Path) -> None:
    base = chat_folder(tmp_path / "base")
    of_base = stops(base, tmp_path)
    assert "<|im_end|>" in of_base
    assert stops(base, own_folder(tmp_path / "own", eos_token="<|im_start|>")) == of_base | {"<|im_start|>"}


def test_a_template_that_names_no_token_stops_at_those_of_the_base(tmp_path: Path) -> None:
    base = chat_folder(tmp_path / "base")
    assert stops(base, own_folder(tmp_path / "own")) == stops(base, tmp_path)


def test_an_export_names_all_of_them(tmp_path: Path) -> None:
    base, expert = chat_folder(tmp_path / "base"), own_folder(tmp_path / "own", PLAIN, eos_token="<|im_start|>")
    tokenizer, file = load_tokenizer(base), base / "generation_config.json"
    ids = {text: tokenizer.encode(text, control_tokens=True)[0] for text in ("<|im_end|>", "<|im_start|>")}
    file.write_text(json.dumps({"eos_token_id": ids["<|im_end|>"]}))
    copy_template(expert, base)
    assert json.loads(file.read_text())["eos_token_id"] == [ids["<|im_end|>"], ids["<|im_start|>"]]


def test_a_model_whose_template_cannot_be_read_is_exported_with_the_stops_it_has(tmp_path: Path) -> None:
    base = chat_folder(tmp_path / "base")
    (base / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((base / "tokenizer_config.json").read_text())
    unnamed = config | {"chat_template": [{"name": "tool_use", "template": "x"}]}
    (base / "tokenizer_config.json").write_text(json.dumps(unnamed))
    with pytest.raises(ChatTemplateError):
        load_chat_template(base)
    (base / "generation_config.json").write_text('{"eos_token_id": 1}')
    add_turn_ends(base)
    assert json.loads((base / "generation_config.json").read_text()) == {"eos_token_id": 1}
