"""Conversations from import to perplexity: only answers count, and each expert answers best in its own domain."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import BloomConfig, BloomForCausalLM

from engine.config import ModelConfig
from engine.methods.registry import methods
from engine.models.families import fresh_model
from engine.text.blocks import MASK_RULE
from engine.text.tokenizer import load_tokenizer
from jobs.replay.replay import find_training, replay
from tests.engine.chat_shapes import CHATML, chat_folder
from tests.engine.text.template_shapes import OLMO_3
from tests.journeys.conftest import SHAPE, TRAINING, Do, done
from ui.cli.app import main
from workbench.analysis.perplexity_tables import perplexity_table
from workbench.analysis.training_curves import job_metrics
from workbench.answers.cards import JobCard
from workbench.exports.facts import expert_facts
from workbench.job_records import jobs
from workbench.questions.inference_modes import InferenceModesRequest
from workbench.questions.perplexities import mix_scores
from workbench.questions.token_comparison import ContrastRequest
from workbench.registry import corpora, database, reports
from workbench.registry.database import reading
from workbench.registry.experts import expert_row
from workbench.schema.tables import Artifact, Evaluation
from workbench.settings import get_settings
from workbench.store.storage import get_storage

ANSWERS = {"sea": "gull tide", "oven": "bake salt"}
BLOCK = 64


def write_chats(folder: Path, name: str) -> Path:
    """60 short conversations, and one longer than a block; questions are alike in both domains, answers are not."""
    draw = random.Random(name)
    words = ANSWERS[name].split()
    records = []
    for number in range(60):
        question = {"from": "human", "value": f"{number} {draw.choice(['why', 'how'])}?"}
        records.append([question, {"from": "gpt", "value": " ".join(draw.choices(words, k=3))}])
    records.append([{"from": "human", "value": "long?"}, {"from": "gpt", "value": " ".join(words * 12)}])
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps({"conversations": one}) + "\n" for one in records), encoding="utf-8")
    return path


def seed_folder(folder: Path, *, has_template: bool = True) -> Path:
    chat_folder(folder, has_template=has_template)
    fresh_model(ModelConfig(**SHAPE), load_tokenizer(folder).vocab_size).save_pretrained(folder)
    return folder


@pytest.fixture
def imported(do: Do, tmp_path: Path) -> Do:
    for name in ANSWERS:
        path = str(write_chats(tmp_path, name))
        done(do({"kind": "import-corpus", "name": name, "path": path, "format": "chat"}))
    folder = str(seed_folder(tmp_path / "model"))
    done(do({"kind": "make-seed", "name": "seed", "source": "folder", "location": folder}))
    return do


def train(do: Do, **changes: Any) -> JobCard:
    training = {**TRAINING, "block_size": BLOCK, "num_steps": 40}
    joint = {"kind": "train-joint", "name": "chat", "seed_model": "seed", "domains": [*ANSWERS], "training": training}
    return do({**joint, **changes})


@pytest.mark.parametrize("method", ["demix", "lora"])
def test_each_expert_answers_best_in_its_own_domain(imported: Do, method: str, capsys) -> None:
    card = done(train(imported, method=method))
    with reading() as session:
        notes = " ".join(f"{event.message} {event.data}" for event in jobs.events(session, card.id))
    assert "1 of 61 conversations are longer than a block of 64 tokens and were cut" in notes
    done(imported({"kind": "evaluate", "mixture": "chat", "split": "test", "block_size": BLOCK, "max_tokens": 4000}))
    with reading() as session:
        table = perplexity_table(session, "chat")
        own = {expert.partition("/")[2]: row for expert, row in zip(table.experts, table.perplexity, strict=True)}
        for column, domain in enumerate(table.domains):
            other = next(name for name in ANSWERS if name != domain)
            assert own[domain][column] < 0.8 * own[other][column]
        for row in session.query(Evaluation):
            assert 0 < row.num_counted < row.num_tokens / 2
        storage = get_storage(get_settings())
        for mixed in mix_scores(session, storage, "chat").domains:
            best = mixed.perplexity_by_expert[mixed.best_expert]
            assert mixed.perplexity < 1.5 * best  # the question is no evidence of the domain, the answer is
        modes = InferenceModesRequest(mixture="chat", num_blocks=1).answer(session, storage)
        assert all(row.naive == pytest.approx(row.label) for row in modes.domains)
        question = ContrastRequest(domain="sea", expert=table.experts[0], rival=table.experts[1])
        compared = question.answer(session, storage)
        assert compared.best[0].num_tokens < BLOCK


def test_attention_stays_inside_each_conversation_where_it_shall(imported: Do, tmp_path: Path, capsys) -> None:
    folder = chat_folder(tmp_path / "bloom")
    config = BloomConfig(vocab_size=load_tokenizer(folder).vocab_size, hidden_size=32, n_layer=2, n_head=2)
    BloomForCausalLM(config).save_pretrained(folder)  # its attention knows distances alone, and no masks of blocks
    done(imported({"kind": "make-seed", "name": "bloom", "source": "folder", "location": str(folder)}))
    options = ["--domains", "sea,oven", "--block-size", str(BLOCK), "--steps", "6", "--here"]
    losses = []
    for name, more in (("apart", ["--separate-conversations"]), ("together", [])):
        assert main(["train", "joint", name, "--seed-model", "seed", *options, *more]) == 0
        with reading() as session:
            expert = expert_row(session, f"{name}/sea")
            assert dict(expert_facts(session, expert).options)["separate_conversations"] == str(bool(more)).lower()
            losses.append([one.value for one in jobs.metrics(session, expert.job_id, "loss")])
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.2)
    capsys.readouterr()
    assert main(["train", "joint", "no", "--seed-model", "bloom", *options, "--separate-conversations"]) != 0
    shown = capsys.readouterr()
    assert "“bloom” cannot keep the conversations of a block apart" in " ".join((shown.out + shown.err).split())


def test_a_seed_without_a_template_is_refused_with_a_sentence(imported: Do, tmp_path: Path) -> None:
    folder = str(seed_folder(tmp_path / "bare", has_template=False))
    done(imported({"kind": "make-seed", "name": "bare", "source": "folder", "location": folder}))
    card = train(imported, seed_model="bare")
    assert card.state == "failed"
    assert "this base has no chat template" in str(card.error)
    path = tmp_path / "notes.jsonl"
    path.write_text("".join(json.dumps({"text": f"gull {n} tide " * 40}) + "\n" for n in range(12)), encoding="utf-8")
    done(imported({"kind": "import-corpus", "name": "notes", "path": str(path)}))
    done(train(imported, seed_model="bare", domains=["notes"], name="plain"))
    card = done(imported({"kind": "evaluate", "mixture": "plain", "block_size": BLOCK, "max_tokens": 400}))
    assert card.result["scored"] == 1  # what it cannot show is left out, and named
    with reading() as session:
        assert any("no chat template: oven, sea" in event.message for event in jobs.events(session, card.id))


def test_every_method_trains_on_conversations(imported: Do) -> None:
    """The loss before any training is that of the seed model on answers, whatever the method."""
    training = {**TRAINING, "block_size": BLOCK, "num_steps": 1, "evaluate_every": 1}
    first = {}
    for name, method in methods().items():
        if method.is_joint and method.is_trainable:
            first[name] = _first_loss(train(imported, method=name, name=f"of {name}", training=training))
    shape = {"num_blocks": 2, "expert_layers": 1}
    mode = {"kind": "train-mode", "name": "of mode", "seed_model": "seed", "domains": [*ANSWERS], "shape": shape}
    first["mode"] = _first_loss(imported({**mode, "training": training}))
    assert len(first) > 5
    assert first == pytest.approx(dict.fromkeys(first, first["dense"]), rel=0.02)


def _first_loss(card: JobCard) -> float:
    with reading() as session:
        return jobs.metrics(session, done(card).id, "loss")[0].value


def test_clusters_of_conversations_are_domains_of_conversations(imported: Do) -> None:
    find = {"kind": "find-clusters", "name": "topics", "num_clusters": 2, "dimension": 3, "map_size": 0}
    done(imported({**find, "domains": [*ANSWERS]}))
    done(imported({"kind": "make-cluster-domains", "clustering": "topics"}))
    with reading() as session:
        parts = [one for one in corpora.list_domains(session) if one.name not in ANSWERS]
        assert [one.format for one in parts] == ["chat", "chat"]
        assert sum(one.num_documents for one in parts) == 122


def test_a_domain_of_conversations_is_shown_as_one_reads_it(imported: Do, capsys) -> None:
    with reading() as session:
        assert {domain.format for domain in corpora.list_domains(session)} == {"chat"}
    assert main(["corpus", "show", "sea", "--documents", "1"]) == 0
    shown = capsys.readouterr().out
    assert "user: " in shown
    assert "\n\nassistant: " in shown
    assert "<|im_start|>" not in shown


def answer_loss(expert: str, domain: str, split: str = "test") -> tuple[float, float]:
    """The mean loss of a stored expert on a domain's answers, and on all tokens; in nats."""
    with reading() as session:
        rows = [row for row in session.query(Evaluation) if (row.expert.name, row.domain.name) == (expert, domain)]
        [folder] = {get_storage().path(row.artifact_id) for row in rows if row.split == split}
    losses_X, counted_X = -np.load(folder / "logprobs.npy").astype(np.float64), np.load(folder / "counted.npy")
    assert 0 < counted_X.sum() < len(counted_X)
    return float(losses_X[counted_X].mean()), float(losses_X[losses_X > 0].mean())


def test_curves_and_certificates_count_answers_only(imported: Do) -> None:
    card = done(train(imported))
    done(imported({"kind": "evaluate", "mixture": "chat", "split": "dev", "block_size": BLOCK, "max_tokens": 4000}))
    of_answers, of_all = answer_loss("chat/sea", "sea", "dev")
    assert of_all > 2 * of_answers
    with reading() as session:
        points = job_metrics(session, card.id, ["dev_loss/sea"]).points
    assert points[-1].value == pytest.approx(of_answers, rel=1e-4)

    assert main(["mixture", "create", "one", "--experts", "chat/sea"]) == 0
    training = {**TRAINING, "block_size": BLOCK, "num_steps": 4}
    joining = {"kind": "train-expert", "name": "cook", "domain": "oven", "mixture": "one", "parent": "chat/sea"}
    done(imported({**joining, "training": training}))
    added = done(imported({"kind": "certify-addition", "expert": "cook", "mixture": "one", "block_size": BLOCK}))
    sizes = {"block_size": BLOCK, "num_blocks": 1, "num_prefixes": 10, "prefix_length": 8, "continuation_length": 4}
    removed = done(imported({"kind": "certify-removal", "expert": "cook", "mixture": "one", **sizes}))
    with reading() as session:
        addition, removal = (reports.get_report(session, one.result["report"]).findings for one in (added, removed))
    [oven] = [one for one in addition["domains"] if one["domain"] == "oven"]
    parent, expert = (np.exp(answer_loss(name, "oven")[0]) for name in ("chat/sea", "cook"))
    assert oven["before"] == pytest.approx(parent, rel=1e-5)  # the mixture was its one expert
    assert addition["alone"] == [{"domain": "oven", "expert": pytest.approx(expert), "parent": pytest.approx(parent)}]
    assert removal["perplexity"][0]["without_expert"] == pytest.approx(parent, rel=1e-5)


def notes_of(card: JobCard) -> str:
    with reading() as session:
        return " ".join(event.message for event in jobs.events(session, card.id))


def test_a_training_says_how_much_of_it_are_answers_and_what_holds_none(do: Do, tmp_path: Path) -> None:
    answer = {"from": "gpt", "value": "gull"}
    talks = [[{"from": "human", "value": f"{number} " + "why? " * 60}, answer] for number in range(6)]
    path = tmp_path / "long.jsonl"
    path.write_text("".join(json.dumps({"conversations": one}) + "\n" for one in talks), encoding="utf-8")
    done(do({"kind": "import-corpus", "name": "long", "path": str(path), "format": "chat"}))
    folder = str(seed_folder(tmp_path / "model"))
    done(do({"kind": "make-seed", "name": "seed", "source": "folder", "location": folder}))
    card = done(train(do, domains=["long"], training={**TRAINING, "block_size": BLOCK, "num_steps": 2}))
    notes = notes_of(card)
    assert "of them are of answers and count in the loss" in notes
    assert "training blocks hold no token of an answer and are left out" in notes
    with reading() as session:
        assert len(jobs.metrics(session, card.id, "loss")) == 2


def test_conversations_that_a_template_refuses_are_counted_before_a_training(do: Do, tmp_path: Path) -> None:
    answer, path = {"from": "gpt", "value": "gull"}, tmp_path / "talk.jsonl"
    questions = [{"from": "human", "value": f"{number}, why?"} for number in range(7)]
    talks = [[one, answer] for one in questions[:4]] + [[one, one, answer] for one in questions[4:]]
    path.write_text("".join(json.dumps({"conversations": one}) + "\n" for one in talks), encoding="utf-8")
    done(do({"kind": "import-corpus", "name": "talk", "path": str(path), "format": "chat"}))
    folder = chat_folder(tmp_path / "strict", "gemma")
    fresh_model(ModelConfig(**SHAPE), load_tokenizer(folder).vocab_size).save_pretrained(folder)
    done(do({"kind": "make-seed", "name": "seed", "source": "folder", "location": str(folder)}))
    card = train(do, domains=["talk"])
    assert card.state == "failed"
    assert "3 of 7 conversations cannot be shown by this seed model" in str(card.error)
    assert "Conversation roles must alternate" in str(card.error)


def test_what_counts_in_a_domain_is_shown_for_a_seed_model(imported: Do, capsys) -> None:
    assert main(["corpus", "show", "sea", "--documents", "1", "--seed-model", "seed"]) == 0
    shown = capsys.readouterr().out
    assert "‹<|im_start|>›" in shown
    assert "|<|im_end|>|" in shown


def test_a_training_that_began_under_the_first_rule_keeps_it(imported: Do) -> None:
    card = done(train(imported, training={**TRAINING, "block_size": BLOCK, "num_steps": 2}))
    kept = get_settings().jobs_folder / card.id / "replay"
    assert json.loads((kept / "masks.json").read_text()) == {"rule": MASK_RULE}
    with reading() as session:
        assert expert_row(session, "chat/sea").config["mask_rule"] == MASK_RULE
    (kept / "masks.json").unlink()  # as of an earlier version
    made = replay(get_settings(), find_training(get_settings(), "chat/sea"))
    assert (made.verdict, made.reasons) == ("equal", [])  # both rules agree for this template
    with reading() as session:
        keys = [row.key for row in session.query(Artifact) if (row.key or "").startswith("tokens:")]
    assert keys
    assert all(key.endswith(f":masks-{MASK_RULE}") for key in keys)  # a replay changes no row


def test_the_card_of_an_expert_of_the_first_rule_says_so_where_it_differs(do: Do, tmp_path: Path, capsys) -> None:
    for name, template in (("same", CHATML), ("other", OLMO_3.replace("{{ eos_token }}", "<|endoftext|>"))):
        folder = seed_folder(tmp_path / name)
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
        path = str(write_chats(tmp_path, "sea"))
        done(do({"kind": "import-corpus", "name": f"d-{name}", "path": path, "format": "chat"}))
        done(do({"kind": "make-seed", "name": name, "source": "folder", "location": str(folder)}))
        training = {**TRAINING, "block_size": BLOCK, "num_steps": 1}
        done(train(do, name=f"m-{name}", seed_model=name, domains=[f"d-{name}"], method="lora", training=training))
        with database.transaction(get_settings()) as session:
            row = expert_row(session, f"m-{name}/d-{name}")
            row.config = {key: value for key, value in row.config.items() if key != "mask_rule"}
        capsys.readouterr()
        assert main(["expert", "show", f"m-{name}/d-{name}"]) == 0
        assert ("masked by the first rule" in " ".join(capsys.readouterr().out.split())) == (name == "other")
