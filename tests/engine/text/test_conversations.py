from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.errors import CorpusError
from engine.text.chat.conversations import stored_conversation
from engine.text.corpus import Document, ReadOptions, read_documents
from engine.text.import_report import ReadReport
from engine.text.split import read_split, store_documents

USER, ANSWER = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}
SHAPES: dict[str, dict[str, Any]] = {
    "OpenAI": {"messages": [USER, ANSWER]},
    "parts of text": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]},
        ]
    },
    "ShareGPT": {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]},
    "prompt and completion": {"prompt": "Hi", "completion": "Hello"},
    "lists of messages": {"prompt": [USER], "completion": [ANSWER]},
    "Alpaca": {"instruction": "Hi", "input": "", "output": "Hello"},
}
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no answer": ({"messages": [USER]}, "has no answer"),
    "no messages": ({"messages": []}, "has no messages"),
    "an unknown role": ({"messages": [{"role": "narrator", "content": "x"}, ANSWER]}, "unknown role “narrator”"),
    "another unknown role": ({"messages": [{"from": "ghost", "value": "x"}]}, "unknown role “ghost”"),
    "an empty message": ({"messages": [USER, {"role": "assistant", "content": " "}]}, "“assistant” is empty"),
    "a call of a tool": ({"messages": [USER, {**ANSWER, "tool_calls": [{"id": "1"}]}]}, "calls a tool"),
    "an answer of a tool": ({"messages": [USER, {"role": "tool", "content": "3"}, ANSWER]}, "calls of tools"),
    "tools": ({"messages": [USER, ANSWER], "tools": [{"type": "function"}]}, "offers tools"),
    "a picture": ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}, ANSWER]}, "not text"),
    "a weight": ({"messages": [USER, {**ANSWER, "weight": 0.5}]}, "counts in full"),
    "no list": ({"messages": "Hi"}, "must be a list"),
    "no object": ({"messages": ["Hi", "Hello"]}, "must be an object"),
    "a number": ({"messages": [{"role": "user", "content": 3}, ANSWER]}, "must be text"),
    "another shape": ({"prompt": "Hi", "completion": "Hello"}, "the records before it “messages”"),
    "plain text": ({"text": "Hi"}, "is not a conversation"),
    "a surrogate": ({"messages": [{"role": "user", "content": "\ud800"}, ANSWER]}, "unpaired surrogate"),
}


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def read(path: Path, report: ReadReport | None = None, **options: Any) -> list[Document]:
    return list(read_documents(path, ReadOptions(format="chat", **options), report or ReadReport()))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_every_shape_is_the_same_conversation(tmp_path: Path, shape: str, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    if suffix == "jsonl":
        write(path, SHAPES[shape])
    else:
        pq.write_table(pa.Table.from_pylist([SHAPES[shape]]), path)
    (document,) = read(path)
    assert stored_conversation(document.messages or "").messages == [USER, ANSWER]
    assert document.text == "user: Hi\n\nassistant: Hello"


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_conversation_is_refused_with_its_line(tmp_path: Path, fault: str) -> None:
    record, reason = BROKEN[fault]
    path = write(tmp_path / "a.jsonl", {"messages": [USER, ANSWER]}, record)
    with pytest.raises(CorpusError, match=reason) as caught:
        read(path)
    assert (caught.value.line, bool(caught.value.next_step)) == (2, True)
    report = ReadReport()
    assert len(read(path, report, skip_bad=True)) == 1
    assert [(one.line, reason in one.reason) for one in report.refused] == [(2, True)]


def test_an_empty_system_message_is_kept_since_templates_have_a_default_one(tmp_path: Path) -> None:
    system = {"role": "system", "content": ""}
    (document,) = read(write(tmp_path / "a.jsonl", {"messages": [system, USER, ANSWER]}))
    assert stored_conversation(document.messages or "").messages[0] == system


def test_conversations_with_the_same_words_in_other_roles_are_two_documents(tmp_path: Path) -> None:
    joined = {"role": "user", "content": "Hi\n\nassistant: Hello"}
    more = {"role": "assistant", "content": "Bye"}
    documents = read(
        write(
            tmp_path / "a.jsonl",
            {"messages": [joined, more]},
            {"messages": [USER, ANSWER, more]},
            {"messages": [joined, more]},
        )
    )
    assert documents[0].text == documents[1].text
    assert len(documents) == len({document.id for document in documents}) == 2


def test_a_conversation_is_anonymised_message_by_message(tmp_path: Path) -> None:
    question = {"role": "user", "content": 'I am\nann@example.org, "quoted"'}
    (document,) = read(write(tmp_path / "a.jsonl", {"messages": [question, ANSWER]}), anonymize=True)
    messages = stored_conversation(document.messages or "").messages
    assert messages[0]["content"].startswith("I am\n")
    assert "ann@" not in messages[0]["content"]
    assert messages[0]["content"].endswith(', "quoted"')
    assert messages[0]["content"] in document.text


def test_conversations_imported_as_text_say_what_to_do(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"messages": [USER, ANSWER]})
    with pytest.raises(CorpusError, match="is a conversation") as caught:
        list(read_documents(path, ReadOptions(), ReadReport()))
    assert "chat" in caught.value.next_step


def test_a_table_without_conversations_names_its_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["Hi"]}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="only “text”"):
        read(tmp_path / "a.parquet")


def stored(tmp_path: Path, documents: list[Document]) -> Path:
    for _ in store_documents(documents, tmp_path / "stored"):
        pass
    return tmp_path / "stored"


def test_stored_conversations_keep_their_messages_and_their_domain_its_format(tmp_path: Path) -> None:
    (tmp_path / "stored").mkdir()
    path = write(tmp_path / "a.jsonl", *({"prompt": f"{n}?", "completion": f"{n}!"} for n in range(9)))
    documents = {document.id: document.messages for document in read(path)}
    folder = stored(tmp_path, read(path))
    rows = [row for split in ("train", "dev", "test") for row in read_split(folder / "0", split)]
    assert {row["id"]: row["messages"] for row in rows} == documents
    assert json.loads((folder / "summary.json").read_text())["domains"][0]["format"] == "chat"


def test_one_domain_of_texts_and_conversations_is_refused(tmp_path: Path) -> None:
    (tmp_path / "stored").mkdir()
    chat = read(write(tmp_path / "a.jsonl", {"messages": [USER, ANSWER]}))
    with pytest.raises(CorpusError, match="both texts and conversations"):
        stored(tmp_path, [Document("a"), *chat])


ENGINE = Path(__file__).parents[3] / "engine"
COMMAND = re.compile(r"\b((?:iconv|tr|jq|sed|awk|python3?|git|curl|unzip) -\S.*?)\.?$")
CLONES = {"git lfs pull", "git annex get"}  # they need the server of the clone
TEXT = "text\nBrücken sind alt\nWehre sind flach\n"
FAULTY = {
    "Latin-1": TEXT.encode("latin-1"),
    "UTF-16 with its mark": TEXT.encode("utf-16"),
    "UTF-16, big end first": b"\xfe\xff" + TEXT.encode("utf-16-be"),
    "UTF-16 without its mark": TEXT.encode("utf-16-le"),
    "UTF-16 without its mark, big end first": TEXT.encode("utf-16-be"),
    "UTF-32": TEXT.encode("utf-32"),
    "NUL bytes in a text": TEXT.replace("alt", "a\0lt").encode(),
}


def documents(path: Path) -> list[str]:
    return [document.text for document in read_documents(path, ReadOptions(), ReadReport())]


@pytest.mark.parametrize("name", FAULTY)
def test_a_command_that_a_refusal_prints_mends_the_file(name: str, tmp_path: Path) -> None:
    suffix = "txt" if "NUL" in name else "csv"
    (tmp_path / f"a.{suffix}").write_bytes(FAULTY[name])
    with pytest.raises(CorpusError) as refusal:
        documents(tmp_path / f"a.{suffix}")
    match = COMMAND.search(refusal.value.next_step)
    assert match, refusal.value.next_step
    if shutil.which(match[1].split()[0]) is None:
        pytest.skip(f"{match[1].split()[0]} is not installed.")

    line = match[1].replace("FILE", f"a.{suffix}").replace("NEW", f"b.{suffix}")
    subprocess.run(line, shell=True, cwd=tmp_path, check=True)

    assert "Brücken sind alt" in "\n".join(documents(tmp_path / f"b.{suffix}"))


def test_no_importer_prints_another_command() -> None:
    files = [*(ENGINE / "text").rglob("*.py"), ENGINE / "path_kinds.py", ENGINE / "foreign_files.py"]
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    commands = {match[1].split()[0] for text in texts if (match := COMMAND.search(text))}
    assert commands == {"iconv", "tr"}
    assert {name for text in texts for name in re.findall(r"`(git [a-z ]+)`", text)} == CLONES
