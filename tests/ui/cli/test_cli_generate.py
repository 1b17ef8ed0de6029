"""`workbench generate`: from the server when it is up, else from this process; each word with its expert."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ui.cli.app import main
from ui.cli.commands.generate import Generated, Palette, PrintedPiece, request_of
from ui.cli.mix_options import Members, mix_request, parse_experts
from ui.generation import model_host
from ui.present.charts.colours import in_order
from workbench.errors import NotFoundError
from workbench.registry import mixtures
from workbench.registry.database import transaction
from workbench.settings import get_settings

MEMBERS = {"both/code": "code", "both/law": "law", "poems": "verse"}
SAY = ["generate", "both", "the sea", "--max-tokens", "3"]


@pytest.fixture
def by_itself(mixed: Path, host: Any, free_port: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No server is up; this process's weights are the fake host's."""
    monkeypatch.setenv("WORKBENCH_API_PORT", str(free_port))
    get_settings.cache_clear()
    monkeypatch.setattr(model_host, "_make_host", lambda _: host)
    return mixed


@pytest.mark.usefixtures("by_itself")
def test_without_a_server_the_model_is_loaded_here_and_that_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(SAY) == 0

    printed = capsys.readouterr()
    assert printed.out == " sea0 sea1 sea2\n"
    assert "loading the model in this process" in printed.err
    assert "Co both/code 75 %, La both/law 25 %" in printed.err


@pytest.mark.usefixtures("by_itself")
def test_speculation_can_be_switched_on(host: Any) -> None:
    assert main(SAY) == 0
    assert not host.sampling.speculate
    assert main([*SAY, "--speculate"]) == 0
    assert host.sampling.speculate


@pytest.mark.usefixtures("server")
def test_a_conversation_is_answered_the_same_by_the_server_and_in_this_process(
    capsys: pytest.CaptureFixture[str], host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*SAY, "--chat", "--json"]) == 0
    served = json.loads(capsys.readouterr().out)
    assert served["tokens"][0]["weights"] == {"both/code": 0.75, "both/law": 0.25}
    monkeypatch.setattr(model_host, "_make_host", lambda _: host)
    monkeypatch.setenv("WORKBENCH_TOKEN", "wrong")
    get_settings.cache_clear()
    assert main([*SAY, "--chat", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == served["text"] != " sea0 sea1 sea2"


@pytest.mark.usefixtures("server")
def test_a_running_server_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SAY, "--json"]) == 0

    result = json.loads(capsys.readouterr().out)
    assert (result["text"], result["finish_reason"]) == (" sea0 sea1 sea2", "length")
    assert result["tokens"][0]["weights"] == {"both/code": 0.75, "both/law": 0.25}
    assert [one["name"] for one in result["manifest"]["experts"]] == ["both/code", "both/law"]


@pytest.mark.usefixtures("server")
def test_a_server_of_another_registry_is_not_used(
    mixed: Path, capsys: pytest.CaptureFixture[str], host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_DATABASE_URL", f"sqlite:///{mixed}/../home/registry.db")
    get_settings.cache_clear()
    monkeypatch.setattr(model_host, "_make_host", lambda _: host)

    assert main(SAY) == 0

    assert "Another workbench's server listens on port" in capsys.readouterr().err


@pytest.mark.usefixtures("server")
def test_both_places_give_the_same(
    capsys: pytest.CaptureFixture[str], host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--off", "law", "--gate", "fixed", "--json"]
    assert main([*SAY, *options]) == 0
    there = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(model_host, "_make_host", lambda _: host)
    monkeypatch.setenv("WORKBENCH_TOKEN", "wrong")
    get_settings.cache_clear()

    assert main([*SAY, *options]) == 0

    assert json.loads(capsys.readouterr().out) == there


@pytest.mark.usefixtures("by_itself")
def test_a_lone_expert_speaks_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "both/law", "the sea", "--max-tokens", "1"]) == 0
    assert "La both/law 100 %" in capsys.readouterr().err


@pytest.mark.usefixtures("by_itself")
@pytest.mark.parametrize("arguments", [["generate", "nosuch", "x"], ["mixture", "perplexity", "nosuch"]])
def test_an_unknown_name_is_reported_with_mixtures_first(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = "Neither a mixture nor an expert is called “nosuch”. Mixtures: both. Experts: both/code, both/law."
    assert capsys.readouterr().err == f"{shown}\n"


@pytest.mark.usefixtures("by_itself")
def test_an_expert_that_is_off_in_the_mixture_can_be_switched_on_for_one_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with transaction() as session:
        mixtures.set_active(session, "both", "both/law", False)

    assert main(SAY) == 0
    assert "both/code 100 %." in capsys.readouterr().err
    assert main([*SAY, "--experts", "code,law"]) == 0
    assert "Co both/code 75 %, La both/law 25 %." in capsys.readouterr().err
    assert main([*SAY, "--off", "law"]) == 0
    assert "both/code 100 %." in capsys.readouterr().err


@pytest.mark.usefixtures("by_itself")
def test_an_unknown_expert_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SAY, "--off", "poems"]) == 2
    assert "poems" in capsys.readouterr().err


def test_experts_are_named_with_weights_or_without() -> None:
    assert parse_experts(MEMBERS, "code=0.5,both/law") == (
        ["both/code", "both/law"],
        {"both/code": 0.5, "both/law": 1.0},
    )
    assert parse_experts(MEMBERS, "law") == (["both/law"], None)
    assert parse_experts(MEMBERS, "") == (None, None)
    with pytest.raises(NotFoundError):
        parse_experts(MEMBERS, "prose=1")


def test_what_is_left_out_does_not_take_part() -> None:
    members = Members(MEMBERS, ["both/code", "both/law"])
    job_spec = mix_request("both", members, "", ["law"], {"top_k": 1})

    assert (job_spec.active, job_spec.weights, job_spec.gate) == (["both/code"], None, {"top_k": 1})
    assert request_of(job_spec) == {"model": "both", "active": ["both/code"], "gate": {"top_k": 1}}


def test_a_terminal_is_not_steered_by_what_a_model_says() -> None:
    painted = Palette(in_order(["code", "law"]), plain=False).paint(
        PrintedPiece("\x1b]0;pwned\x07a\tb\n", {"law": 1.0})
    )

    assert painted == "\x1b[38;5;162m]0;pwneda\tb\n\x1b[0m"


def test_mean_weights_are_ranked() -> None:
    generated = Generated(
        [PrintedPiece("a", {"x": 0.2, "y": 0.8}), PrintedPiece("b", {"x": 0.4, "y": 0.6}), PrintedPiece("", {})]
    )

    assert list(generated.mean_weights().items()) == [("y", 0.7), ("x", pytest.approx(0.3))]


@pytest.mark.parametrize("parts", ["code", "code,law", ""])
def test_parts_go_to_the_server_with_weights_or_without(
    composed: Path, server: Any, parts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert composed
    assert server
    for weights in ([], ["--experts", "apps/composed=2"]):
        assert (
            main(["generate", "apps", "the sea", "--max-tokens", "2", "--parts", f"apps/composed:{parts}", *weights])
            == 0
        )
        inside = capsys.readouterr().err.splitlines()[-1]
        shares = {
            "code": "backbone 38 %, code 62 %",
            "code,law": "backbone 38 %, code 31 %, law 31 %",
            "": "backbone 100 %",
        }
        assert inside == f"Inside apps/composed: {shares[parts]}."


def test_parts_without_an_expert_are_refused(capsys: pytest.CaptureFixture[str], by_itself: Path) -> None:
    assert by_itself
    assert main([*SAY, "--parts", "code"]) == 2
    assert "does not name parts as EXPERT:PART,PART" in capsys.readouterr().err
