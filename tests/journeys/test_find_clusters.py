"""From the text of three domains to clusters of it: found, described, spread over jobs, refused where it cannot be."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.clusters.documents import ClusteredDocuments, hex_of, load_documents
from engine.clusters.embedders import hidden_states
from engine.device import choose_device
from jobs.attempt.attempt import run_here
from jobs.kinds.clusters import find_clusters
from jobs.plans.clusterings import submit_find
from jobs.queue.submit import run_now
from tests.journeys.conftest import SHAPE, WORDS, Do, done
from ui.cli.app import main
from ui.kinds.catalog import result_sentence
from ui.present.text.clusters import describe_clustering
from workbench.answers.cards import ClusteringCard
from workbench.errors import BadSpecError, InUseError, NameTakenError, StorageError
from workbench.job_records import jobs
from workbench.kinds.clusters import FindClusters, SplitCluster
from workbench.registry import corpora as corpora_rows
from workbench.registry import seeds
from workbench.registry.clusters.cluster_documents import POINT, changes, get_document, map_points
from workbench.registry.clusters.clusterings import get_clustering
from workbench.registry.database import reading, transaction
from workbench.schema.tables import Artifact, Clustering
from workbench.settings import get_settings
from workbench.store.storage import get_storage

FIND = {"kind": "find-clusters", "name": "topics", "num_clusters": 3, "dimension": 5, "map_size": 0}


@pytest.fixture
def imported(do: Do, corpora: dict[str, Path]) -> Do:
    """A home with three domains of 60 documents each."""
    for name, path in corpora.items():
        assert do({"kind": "import-corpus", "name": name, "path": str(path)}).state == "done"
    return do


def outcome(name: str = "topics") -> tuple[ClusteringCard, ClusteredDocuments]:
    with reading() as session:
        card = get_clustering(session, name)
        row = session.query(Clustering).filter_by(name=name).one()
        return card, load_documents(get_storage().path(row.artifact_id))


def partition(documents: ClusteredDocuments) -> set[frozenset[str]]:
    """The clusters as sets of documents, whatever their numbers."""
    ids = np.array(hex_of(documents.ids_N))
    return {frozenset(ids[documents.labels_N == number].tolist()) for number in set(documents.labels_N.tolist())}


# what is found --------------------------------------------------------------------------------------


def test_clusters_are_made_and_described(imported: Do) -> None:
    job = imported(FIND)
    assert job.state == "done", job.error
    card, documents = outcome()
    assert (card.num_documents, card.sources, len(card.clusters)) == (180, ["court", "kitchen", "sea"], 3)
    assert [one.num_documents for one in card.clusters] == card.metrics["sizes"] == documents.sizes(3)
    assert card.metrics["overlap"]["normalised_mutual_information"] > 0.9
    words = [{word for word in WORDS if set(WORDS[word].split()) & set(one.terms[:5])} for one in card.clusters]
    assert sorted(map(sorted, words)) == [["court"], ["kitchen"], ["sea"]]
    for cluster in card.clusters:
        assert cluster.name == " ".join(cluster.terms[:3])
        with reading() as session:
            typical = [get_document(session, get_storage(), "topics", id) for id in cluster.representatives]
        assert len({one.domain for one in typical}) == 1
        assert [one.cluster for one in typical] == [cluster.number] * 5
    assert "180 documents in 3 clusters" in job.result["sentence"]


def test_a_single_cluster_is_described_as_one(imported: Do) -> None:
    job = imported({**FIND, "num_clusters": 1, "domains": ["sea"]})
    assert job.result["sentence"] == "60 documents in 1 cluster."


def test_a_clustering_says_the_bytes_of_its_clusters_and_warns_of_very_unequal_documents(
    imported: Do, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = imported({**FIND, "num_clusters": 3})
    card, documents = outcome()
    assert documents.num_bytes_N is not None
    files = [tmp_path / f"{name}.jsonl" for name in ("sea", "kitchen", "court")]
    texts = [json.loads(line)["text"] for file in files for line in file.read_text("utf-8").splitlines()]
    assert sum(card.metrics["num_bytes"]) == sum(len(text.encode()) for text in texts)
    least, most = min(card.metrics["num_bytes"]), max(card.metrics["num_bytes"])
    assert job.result["lengths"] == f"A cluster has {least:,} to {most:,} bytes of text."
    long = tmp_path / "long.jsonl"
    repeated = [f"{text} " * (200 if number < 5 else 1) for number, text in enumerate(texts)]
    long.write_text("\n".join(json.dumps({"text": text}) for text in repeated), encoding="utf-8")
    imported({"kind": "import-corpus", "name": "long", "path": str(long)})
    job = imported({**FIND, "name": "unequal", "domains": ["long"]})
    assert "The lengths of the documents are very unequal: the longest tenth holds" in job.result["lengths"]
    capsys.readouterr()
    assert main(["cluster", "show", "unequal"]) == 0
    assert "--piece-length" in (shown := capsys.readouterr().out)
    assert "Bytes" in shown


def test_long_documents_are_clustered_in_pieces_that_become_the_documents_of_its_domains(
    imported: Do, corpora: dict[str, Path], tmp_path: Path
) -> None:
    texts = [json.loads(line)["text"] for line in corpora["sea"].read_text("utf-8").splitlines()]
    long = tmp_path / "long.jsonl"
    repeated = [
        " ".join(f"harbour{number} sails at {hour}" for hour in range(90)) if number < 5 else text
        for number, text in enumerate(texts)
    ]
    long.write_text("\n".join(json.dumps({"text": text}) for text in repeated), encoding="utf-8")
    imported({"kind": "import-corpus", "name": "long", "path": str(long)})
    spec = ["--domains", "long,court", "--clusters", "3", "--dimension", "5", "--map-size", "0", "--here"]
    assert main(["cluster", "find", "cut", *spec, "--piece-length", "400"]) == 0
    card, documents = outcome("cut")
    assert len(documents) > len(repeated) + 60  # more documents than were imported
    assert card.metrics["share_of_longest_tenth"] < 0.5
    with reading() as session:
        shown = [get_document(session, get_storage(), "cut", number).text for number in range(len(documents))]
        unchanged = changes(session, get_storage(), "cut")
    assert max(map(len, shown)) <= 400
    assert (unchanged.num_missing, unchanged.num_new) == (0, 0)
    assert "".join(sorted("".join(shown).replace(" ", ""))) == "".join(
        sorted("".join(set(repeated) | court_texts(corpora)).replace(" ", ""))
    )
    made = imported({"kind": "make-cluster-domains", "clustering": "cut"})
    assert made.state == "done", made.error
    with reading() as session:
        domains = [corpora_rows.get_domain(session, f"cut/{number}") for number in range(3)]
    assert sum(domain.num_documents for domain in domains) == len(documents)
    for document in range(5):  # the pieces of a document stay in one split
        splits = [documents.split(number) for number, text in enumerate(shown) if f"harbour{document} " in text]
        assert len(splits) > 3
        assert len(set(splits)) == 1


def court_texts(corpora: dict[str, Path]) -> set[str]:
    return {json.loads(line)["text"] for line in corpora["court"].read_text("utf-8").splitlines()}


def test_plain_text_says_how_it_was_cut_into_documents(imported: Do, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(
        "".join(f"the sea is wide and deep, {n}\n\n" for n in range(5000)), encoding="utf-8"
    )
    spec = {"kind": "import-corpus", "name": "book", "path": str(tmp_path / "book.txt")}
    job = imported(spec)
    assert job.state == "done", job.error
    assert job.result["cut"].endswith("at the first empty line after 10,000 characters.")
    assert job.result["cut"] in result_sentence(job)
    job = imported({**spec, "name": "pieces", "piece_length": 500})
    assert "pieces of at most 500 characters" in job.result["cut"]
    assert "cut" not in result_sentence(imported({**spec, "name": "lines", "path": str(tmp_path / "sea.jsonl")}))


def test_the_fit_sees_only_training_text_and_is_balanced_there(imported: Do) -> None:  # L11
    imported({**FIND, "num_clusters": 7})
    card, documents = outcome()
    held_out = documents.splits_N != 0
    assert held_out.sum() >= 6
    assert not (documents.is_fitted_N & held_out).any()
    assert documents.is_fitted_N.sum() == card.num_fitted == 180 - held_out.sum()
    sizes = Counter(documents.labels_N[documents.is_fitted_N].tolist())
    assert max(sizes.values()) - min(sizes.values()) <= 1


def test_what_lies_elsewhere_under_other_names_is_clustered_alike(imported: Do, tmp_path: Path) -> None:  # L16
    imported({**FIND, "num_clusters": 5, "sample_size": 100})
    for number, name in enumerate(["sea", "kitchen", "court"]):
        moved = tmp_path / "moved" / f"{number}.jsonl"
        moved.parent.mkdir(exist_ok=True)
        moved.write_text((tmp_path / f"{name}.jsonl").read_text(), encoding="utf-8")
        imported({"kind": "import-corpus", "name": f"part {number}", "path": str(moved)})
    parts = ["part 0", "part 1", "part 2"]
    assert imported({**FIND, "name": "again", "num_clusters": 5, "sample_size": 100, "domains": parts}).state == "done"
    (_, first), (_, second) = outcome("topics"), outcome("again")
    assert first.labels_N.tolist() == second.labels_N.tolist()
    assert first.squared_distances_N.tolist() == second.squared_distances_N.tolist()


def test_a_text_of_two_domains_counts_once_and_is_held_out_if_one_holds_it_out(imported: Do, tmp_path: Path) -> None:
    twice = tmp_path / "twice.jsonl"
    twice.write_text((tmp_path / "sea.jsonl").read_text() + "\n" + json.dumps({"text": "one more"}), encoding="utf-8")
    imported({"kind": "import-corpus", "name": "twice", "path": str(twice)})
    job = imported(FIND)
    card, documents = outcome()
    assert (card.num_documents, card.metrics["num_duplicates"]) == (181, 60)
    assert "60 that are in several domains count once" in job.result["sentence"]
    assert len(set(hex_of(documents.ids_N))) == 181


@pytest.mark.parametrize("method", ["unbalanced", "random"])
def test_the_ablations_are_made_by_the_same_job(imported: Do, method: str) -> None:
    assert imported({**FIND, "method": method}).state == "done"
    card, _ = outcome()
    assert card.config["clusters"]["method"] == method
    shared = card.metrics["overlap"]["normalised_mutual_information"]
    assert shared > 0.9 if method == "unbalanced" else shared < 0.2


def test_a_seed_model_can_embed_and_is_kept_while_its_clusters_are(
    imported: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported({"kind": "make-seed", "name": "seed", "domains": list(WORDS), "vocab_size": 320, "shape": SHAPE})
    chosen: list[str] = []
    monkeypatch.setattr(hidden_states, "choose_device", lambda name: chosen.append(name) or choose_device("cpu"))
    job = imported({**FIND, "embedder": "hidden_states", "seed_model": "seed", "max_tokens": 32})
    assert job.state == "done", job.error
    assert chosen[:2] == ["auto"] * 2  # that of the settings, for the fit, and the documents' clusters
    card, _ = outcome()
    assert (card.seed, card.config["embedder"]["kind"]) == ("seed", "hidden_states")
    assert all(len(one.terms) > 5 for one in card.clusters)
    with pytest.raises(InUseError, match="clustering “topics”"), transaction() as session:
        seeds.delete_seed(session, "seed")
    chosen.clear()
    job = imported({"kind": "split-cluster", "clustering": "topics", "cluster": "0"})
    assert job.state == "done", job.error
    assert chosen == ["auto"]


def test_a_split_leases_a_gpu_where_a_model_embeds(imported: Do) -> None:
    imported({"kind": "make-seed", "name": "seed", "domains": list(WORDS), "vocab_size": 320, "shape": SHAPE})
    by_model = {"name": "read", "embedder": "hidden_states", "seed_model": "seed", "max_tokens": 32}
    for options in ({}, by_model):
        assert imported({**FIND, **options}).state == "done"
    with transaction() as session:
        ids = [jobs.create_job(session, SplitCluster(clustering=name, cluster="0")) for name in ("topics", "read")]
        needs = jobs.device_needs(session, ids, get_settings())
    assert [needs[id].count for id in ids] == [0, 1]


def test_the_map_is_points_in_bytes_and_a_text_is_there_on_request(imported: Do) -> None:
    assert imported({**FIND, "map_size": 100}).state == "done"
    with reading() as session:
        chart = map_points(session, get_storage(), "topics")
        points = np.frombuffer(chart.points, dtype=POINT)
        one = get_document(session, get_storage(), "topics", int(points["document"][7]))
    card, documents = outcome()
    assert 60 < chart.num_points == len(points) == card.metrics["map"]["num_points"] < 140  # drawn by their ids
    assert len(chart.points) == 20 * chart.num_points
    assert np.isfinite(points["x"]).all()
    assert one.cluster == points["cluster"][7]
    assert one.domain == card.sources[points["source"][7]]
    assert one.id == documents.id(int(points["document"][7]))
    assert len(one.text.split()) == 60


def test_without_a_map_the_answer_says_so(imported: Do) -> None:
    imported(FIND)
    with reading() as session, pytest.raises(StorageError, match="has no map"):
        map_points(session, get_storage(), "topics")


# over several jobs ----------------------------------------------------------------------------------


def test_shards_run_as_jobs_of_their_own_and_give_the_same_clusters(imported: Do) -> None:
    imported({**FIND, "name": "alone"})
    ids = submit_find(FindClusters.model_validate({**FIND, "shard_size": 50}))
    with reading() as session:
        cards = [jobs.get_job(session, id) for id in ids]
    assert [card.kind for card in cards] == ["cluster-part"] * 5 + ["find-clusters"]
    assert [len(card.after) for card in cards] == [0, 1, 1, 1, 1, 5]
    for id in [ids[0], *reversed(ids[1:5]), ids[5]]:  # in whatever order workers take them
        list(run_here(id))
    (_, by_itself), (card, spread) = outcome("alone"), outcome("topics")
    assert spread.labels_N.tolist() == by_itself.labels_N.tolist()
    assert spread.ids_N.tolist() == by_itself.ids_N.tolist() == sorted(by_itself.ids_N.tolist())
    assert card.num_documents == 180
    with reading() as session:
        assert session.query(Artifact).filter_by(kind="clusters-part").all() == []


def test_what_was_done_before_a_crash_is_not_done_again(imported: Do, monkeypatch: pytest.MonkeyPatch) -> None:
    placed: list[int] = []

    def read_shard(folders: list[Path], shard: int, num_shards: int) -> Any:
        if shard == 2 and placed.count(2) == 0:
            placed.append(2)
            raise RuntimeError("the machine went away")
        placed.append(shard)
        return original(folders, shard, num_shards)

    original = find_clusters.read_shard
    fits: list[Any] = []
    fit = find_clusters.fit
    monkeypatch.setattr(find_clusters, "read_shard", read_shard)
    monkeypatch.setattr(find_clusters, "fit", lambda *args: fits.append(args) or fit(*args))
    job = imported({**FIND, "shard_size": 50})
    assert (job.state, placed) == ("failed", [0, 1, 2])
    with transaction() as session:
        jobs.retry(session, job.id)
    list(run_here(job.id))
    assert (placed, len(fits)) == ([0, 1, 2, 2, 3], 1)
    assert outcome()[0].num_documents == 180


# what cannot be ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_clusters": 500}, "16. training documents are too few for 500 clusters"),
        ({"num_clusters": 100, "sample_size": 50}, "50 training documents are too few for 100 clusters"),
    ],
)
def test_too_few_documents_fail_the_job_and_store_nothing(imported: Do, change: Any, words: str) -> None:
    job = imported({**FIND, **change})
    assert job.state == "failed"
    assert re.search(words, job.error), job.error
    with reading() as session:
        assert session.query(Clustering).count() == 0


def test_one_cluster_holds_everything(imported: Do) -> None:
    imported({**FIND, "num_clusters": 1})
    card, _ = outcome()
    assert [one.num_documents for one in card.clusters] == [180]
    assert card.metrics["overlap"]["normalised_mutual_information"] == 0


def test_documents_without_a_known_word_are_counted(imported: Do, tmp_path: Path) -> None:
    path = tmp_path / "signs.jsonl"
    path.write_text("".join(json.dumps({"text": "! " * count}) + "\n" for count in range(1, 31)), encoding="utf-8")
    imported({"kind": "import-corpus", "name": "signs", "path": str(path)})
    job = imported(FIND)
    assert "30 of them contain no known word" in job.result["sentence"]
    assert outcome()[0].metrics["num_blank"] == 30
    job = imported({**FIND, "name": "nothing", "domains": ["signs"]})
    assert job.state == "failed"
    assert "has a word that tf-idf counts" in job.error


def write_texts(do: Do, folder: Path, name: str, texts: Iterable[str]) -> None:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    done(do({"kind": "import-corpus", "name": name, "path": str(path)}))


@pytest.mark.parametrize("method", ["balanced", "unbalanced"])
def test_fewer_vectors_than_clusters_are_refused_with_both_numbers(do: Do, tmp_path: Path, method: str) -> None:
    write_texts(do, tmp_path, "same", (f"{'apple' if n % 3 else 'pear'} words" + "!" * n for n in range(40)))
    job = do({**FIND, "num_clusters": 4, "method": method})
    assert re.fullmatch(r"The \d+ documents to fit clusters on have 2 different vectors, too few for 4 .*", job.error)
    assert "--embedder hidden_states" in job.next_step


def test_clusters_that_divide_equal_vectors_are_named_as_arbitrary(do: Do, tmp_path: Path, capsys) -> None:
    write_texts(do, tmp_path, "same", (f"{'apple' if n % 10 else 'pear'} words" + "!" * n for n in range(40)))
    sentence = done(do({**FIND, "num_clusters": 2})).result["sentence"]
    assert re.search(r"\d+ documents \(most of clusters 0, 1\) have the same vector as .* is arbitrary", sentence)
    assert main(["cluster", "show", "topics"]) == 0
    assert "is arbitrary" in capsys.readouterr().out
    assert "is arbitrary" in describe_clustering(outcome()[0])
    split = do({"kind": "split-cluster", "clustering": "topics", "cluster": "0", "num_clusters": 3})
    assert "different vector" in split.error


def test_text_without_blanks_is_named_with_the_embedder_that_helps(do: Do, tmp_path: Path) -> None:
    clauses = ["今天天气很好", "股票市场昨天大幅下跌", "这个菜谱需要两个鸡蛋", "法院驳回了上诉"]
    write_texts(
        do, tmp_path, "chinese", (f"{clauses[n % 4]}。{clauses[n // 4 % 4]}，{clauses[n // 16]}" for n in range(60))
    )
    sentence = done(do(FIND)).result["sentence"]
    assert "100 % of the letters are in text without blanks between words" in sentence
    assert "--embedder hidden_states" in sentence


def test_documents_without_words_are_clustered_by_hidden_states(do: Do, tmp_path: Path) -> None:
    write_texts(do, tmp_path, "signs", ("!?;"[n % 3] * n + "-" * (n % 7) for n in range(1, 60)))
    done(do({"kind": "make-seed", "name": "seed", "domains": ["signs"], "vocab_size": 300, "shape": SHAPE}))
    assert "--embedder hidden_states" in do(FIND).next_step
    done(do({**FIND, "embedder": "hidden_states", "seed_model": "seed"}))
    assert [one.terms for one in outcome()[0].clusters] == [[], [], []]


def test_text_that_was_clustered_cannot_be_deleted_and_names_are_unique(imported: Do) -> None:
    imported(FIND)
    with pytest.raises(InUseError, match="clustering “topics”"), transaction() as session:
        corpora_rows.delete_corpus(session, "sea")
    with pytest.raises(NameTakenError):
        submit_find(FindClusters.model_validate(FIND))
    with pytest.raises(BadSpecError, match="There is no domain called “moon”"):
        submit_find(FindClusters.model_validate({**FIND, "name": "other", "domains": ["moon"]}))


def test_no_text_at_all_is_reported(do: Do) -> None:
    job = do(FIND)
    assert (job.state, job.error) == ("failed", "Nothing to cluster: there is no training domain.")


def test_changes_name_and_count_the_documents(imported: Do, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported({**FIND, "domains": ["sea"]})
    lines = (tmp_path / "sea.jsonl").read_text().splitlines()[:-4]
    lines += [json.dumps({"text": f"new text {number}"}) for number in range(3)]
    (tmp_path / "sea2.jsonl").write_text("\n".join(lines), encoding="utf-8")
    imported({"kind": "import-corpus", "name": "sea2", "path": str(tmp_path / "sea2.jsonl")})
    with reading() as session:
        shown = changes(session, get_storage(), "topics", ["sea2"])
        same = changes(session, get_storage(), "topics")
    assert (shown.num_missing, shown.num_new, len(shown.missing)) == (4, 3, 4)
    assert (same.num_missing, same.num_new) == (0, 0)
    assert main(["cluster", "changes", "topics", "--domains", "sea2"]) == 0
    assert f"4 documents of the clustering are missing: {shown.missing[0]}" in capsys.readouterr().out
    assert main(["cluster", "changes", "topics"]) == 0
    assert "Nothing changed" in capsys.readouterr().out


def test_a_stop_leaves_the_job_to_go_on(imported: Do) -> None:
    job_id, events = run_now({**FIND, "shard_size": 50})
    for event in events:
        if getattr(event, "note", "") == "assigning documents to clusters":
            break
    events.close()  # type: ignore[attr-defined]
    with transaction() as session:
        assert jobs.get_job(session, job_id).state == "paused"
        jobs.resume(session, job_id)
    list(run_here(job_id))
    assert outcome()[0].num_documents == 180
