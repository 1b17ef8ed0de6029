"""A walk: text of people goes in, dummy tokens are kept, and the report says how many of which."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.journeys.conftest import Do
from workbench.registry import corpora
from workbench.registry.database import reading
from workbench.settings import get_settings
from workbench.store.storage import get_storage

PRIVATE = ["ann@example.com", "@ann_lee", "202-555-0143", "4111 1111 1111 1111", "078-05-1120"]


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """Nine letters that differ, and one that differs from the last only in who wrote it."""
    texts = [f"Letter {number}: write to {private}." for number, private in enumerate(PRIVATE * 2) if number < 9]
    texts.append("Letter 8: write to 4242 4242 4242 4242.")
    path = tmp_path / "letters.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts), encoding="utf-8")
    return path


def kept(home: Path) -> str:
    with reading() as session:
        storage = get_storage(get_settings())
        parts = [
            corpora.preview_documents(session, storage, "letters", split, 20) for split in ("train", "dev", "test")
        ]
    return "\n".join(document.text for part in parts for document in part)


def test_an_import_keeps_dummy_tokens_and_reports_them(do: Do, home: Path, letters: Path) -> None:
    card = do({"kind": "import-corpus", "name": "letters", "path": str(letters), "anonymize": True})
    assert (card.state, card.result and card.result["num_documents"]) == ("done", 9)
    assert not any(private in kept(home) for private in PRIVATE)
    with reading() as session:
        report = corpora.get_corpus(session, "letters").report
    assert report.num_duplicates == 1
    assert report.anonymized == {
        "email": 2,
        "dart": 0,
        "fb_user_id": 0,
        "credit_card_number": 2,
        "ssn": 1,
        "phone_number": 2,
        "user": 2,
    }


def test_nothing_is_replaced_unless_requested(do: Do, home: Path, letters: Path) -> None:
    do({"kind": "import-corpus", "name": "letters", "path": str(letters)})
    assert all(private in kept(home) for private in PRIVATE)
    with reading() as session:
        report = corpora.get_corpus(session, "letters").report
    assert (report.num_documents, report.anonymized) == (10, {})
