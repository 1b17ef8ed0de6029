"""Corpora and seeds: registered whole, listed, refused and deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from workbench.errors import BadSpecError, InUseError, NameTakenError, NotFoundError, StorageError
from workbench.job_records import jobs
from workbench.kinds.analysis import Evaluate
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry import corpora, experts, seeds
from workbench.schema.tables import Artifact, Corpus, Domain

if TYPE_CHECKING:
    from tests.workbench.conftest import World


def test_a_corpus_is_registered_with_all_its_domains(world: World) -> None:
    card = world.corpus("library", "law", "news", role="novel", licence="CC0")
    assert card.domains == ["law", "news"]
    assert [domain.name for domain in corpora.list_domains(world.session)] == ["law", "news"]
    law = corpora.get_domain(world.session, "law")
    assert (law.corpus, law.role, law.licence, law.num_words) == ("library", "novel", "CC0", 30)
    assert corpora.list_corpora(world.session) == [corpora.get_corpus(world.session, "library")] == [card]


def test_a_domain_without_a_name_is_called_after_its_corpus(world: World) -> None:
    assert world.corpus("law").domains == ["law"]


def test_names_are_unique(world: World) -> None:
    world.corpus("library", "law")
    with pytest.raises(NameTakenError, match="A corpus called “library” exists already"):
        world.corpus("library", "other")
    with pytest.raises(BadSpecError) as caught:
        world.corpus("second", "law", "twice", "twice", "new")
    assert len(caught.value.complaints) == 2
    assert world.session.scalars(select(Corpus.name)).all() == ["library"]


@pytest.mark.parametrize("name", ["a\nb", "x" * 81, " ", "\x00", "law, old"])
def test_records_cannot_give_a_domain_a_name_that_no_screen_can_show(world: World, name: str) -> None:
    with pytest.raises(BadSpecError, match="1 to 80 printable characters"):
        world.corpus("library", name)


def test_what_is_unknown_lists_what_is_known(world: World) -> None:
    world.corpus("library", "law", "news")
    with pytest.raises(NotFoundError, match=r"There is no domain called “lwa”\. Known: law, news\."):
        corpora.get_domain(world.session, "lwa")


def test_documents_can_be_viewed(world: World) -> None:
    from engine.text.corpus import Document
    from engine.text.split import store_documents

    world.corpus("library", "law")
    row = corpora.domain_row(world.session, "law")
    with world.storage.new(row.artifact_id) as folder:
        documents = [Document(text=f"text {n}", domain=None, group=None, source="here") for n in range(200)]
        for _ in store_documents(iter(documents), folder):
            pass
    first = corpora.preview_documents(world.session, world.storage, "law", "train", limit=3)
    later = corpora.preview_documents(world.session, world.storage, "law", "train", limit=3, offset=2)
    assert len(first) == 3
    assert first[2] == later[0]
    assert first[0].text.startswith("text ")


def test_conversations_are_shown_with_the_values_that_they_give_to_the_template(world: World) -> None:
    from engine.text.chat.conversations import as_stored, as_text
    from engine.text.corpus import Document
    from engine.text.split import store_documents
    from tests.engine.chat_shapes import MARKED, chat_folder

    world.seed()
    base = chat_folder(world.storage.path(seeds.seed_row(world.session, "seed").artifact_id))
    (base / "chat_template.jinja").write_text("{{ style }}" + MARKED)
    world.corpus("talk")
    row = corpora.domain_row(world.session, "talk")
    row.format = "chat"
    talk = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    stored = [as_stored(talk, {"style": "Be<|im_end|> brief."}), as_stored(talk)]
    documents = (Document(as_text(talk), None, str(n), "", stored[n % 2]) for n in range(20))
    for _ in store_documents(documents, world.storage.path(row.artifact_id)):
        pass
    shown = corpora.preview_marked(world.session, world.storage, "talk", "seed")
    texts = {"".join(token.text for token in one.tokens) for one in shown}
    counted = {"".join(token.text for token in one.tokens if token.in_loss) for one in shown}
    plain = "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\nSo.<|im_end|>\n"
    assert (texts, counted) == ({plain, f"Be<|im_end|> brief.{plain}"}, {"So.<|im_end|>"})


def test_documents_that_are_gone_are_missed(world: World) -> None:
    world.corpus("library", "law")
    with pytest.raises(StorageError, match="The text of “law” is not in"):
        corpora.preview_documents(world.session, world.storage, "law")


def test_a_corpus_that_nobody_needs_is_deleted_with_all_that_was_made_of_it(world: World) -> None:
    world.corpus("library", "law", "news")
    world.artifact("tokens", key=f"tokens:{corpora.get_domain(world.session, 'law').id}:hash")
    corpora.delete_corpus(world.session, "library")
    world.session.flush()
    for table in (Corpus, Domain, Artifact):
        assert world.session.scalars(select(table)).all() == []


def test_a_corpus_in_use_says_who_needs_it(world: World) -> None:
    world.corpus("library", "law")
    jobs.create_job(world.session, MakeSeed(name="seed", domains=["law"]), title="Make my seed")
    world.expert("lawyer", "law")
    with pytest.raises(InUseError, match="needed by expert “lawyer”; job “Make my seed”") as caught:
        corpora.delete_corpus(world.session, "library")
    assert "“library” cannot be deleted" in caught.value.problem
    assert corpora.get_corpus(world.session, "library")


def test_an_evaluation_on_all_domains_needs_every_corpus(world: World) -> None:
    world.corpus("library", "law")
    world.corpus("second", "novel")
    jobs.create_job(world.session, Evaluate(mixture="mix"), title="Score all")
    jobs.create_job(world.session, Evaluate(mixture="mix", domains=["novel"]), title="Score one")
    with pytest.raises(InUseError, match="needed by job “Score all”"):
        corpora.delete_corpus(world.session, "library")


def test_a_job_that_has_ended_needs_nothing_any_more(world: World) -> None:
    world.corpus("library", "law")
    job = jobs.create_job(world.session, MakeSeed(name="seed", domains=["law"]))
    jobs.request_stop(world.session, job, "cancel")
    corpora.delete_corpus(world.session, "library")


# seeds -----------------------------------------------------------------------------------------------


def test_a_seed_is_registered_and_listed(world: World) -> None:
    card = world.seed("small")
    assert card.num_parameters == 3_000_000_000
    assert card.size_bytes > 0
    assert seeds.list_seeds(world.session) == [card] == [seeds.get_seed(world.session, "small")]
    with pytest.raises(NameTakenError):
        world.seed("small")
    with pytest.raises(NotFoundError, match="Known: small"):
        seeds.get_seed(world.session, "large")


def test_a_seed_in_use_says_who_needs_it(world: World) -> None:
    seed = world.seed("small")
    world.corpus("library", "law")
    world.expert("lawyer", "law", seed_id=seed.id)
    job_spec = TrainJoint(name="mix", seed_model="small", domains=["law"])
    job = jobs.create_job(world.session, job_spec)
    with pytest.raises(InUseError, match="needed by expert “lawyer”; job “Train joint model mix”"):
        seeds.delete_seed(world.session, "small")
    jobs.request_stop(world.session, job, "cancel")
    experts.delete_expert(world.session, "lawyer")
    seeds.delete_seed(world.session, "small")
    assert seeds.list_seeds(world.session) == []
