"""The playground: what it shows is escaped, said in words, and streams through the API's own slots."""

from __future__ import annotations

import asyncio
import html
import json
import math
import re
import time
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from engine.errors import ContextLengthExceededError
from engine.events import Done, GateWeights, TextReading, Token
from ui.api.app import create_app
from ui.errors import BadUsageError
from ui.playground.opening import first_choice
from ui.playground.player import Player, frame_html
from ui.playground.rounds import Memory, PaneRequest, Round
from ui.playground.view import PaneAnswer, answer_html, hint_html, problem_html
from workbench.answers.posteriors import Manifest, ManifestExpert
from workbench.answers.server import Model
from workbench.formatting.palette import GREY, look_of
from workbench.registry import mixtures
from workbench.registry.database import transaction
from workbench.settings import Settings

HOSTILE = "<img src=x onerror=alert(1)>${alert(2)}{{alert(3)}}"


def manifest(**parts_by_expert: list[str] | None) -> Manifest:
    """The files behind an answer of these experts, with the active parts of those that have some."""
    experts = [
        ManifestExpert(id=name, name=name, sha256="ab" * 32, weight=1.0, base_sha256="ef" * 32, parts=parts)
        for name, parts in parts_by_expert.items()
    ]
    return Manifest(model="m", experts=experts, tokenizer_sha256="01" * 32, gate={}, clustering_sha256=None)


def answer_of(*weights: float) -> PaneAnswer:
    """An answer of one token for each weight of the first expert."""
    answer = PaneAnswer(HOSTILE, [HOSTILE, "law"], manifest(**{HOSTILE: None, "law": None}))
    for weight in weights:
        answer = answer.with_event(Token(1, HOSTILE, -1.0, {HOSTILE: weight, "law": 1 - weight}))
    return answer


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The application with the playground, made once: Gradio takes seconds."""
    app = create_app(Settings(home=tmp_path_factory.mktemp("home"), studio_port=8777))
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        yield client


@pytest.fixture
def player(mixed: Path, host: Any) -> Player:
    return Player(create_app(Settings(home=mixed), host, playground=False).state.workbench)


def form_values(
    player: Player,
    model: str | None,
    experts: list[str],
    max_tokens: int = 3,
    parts: list[str] | None = None,
    without: bool = False,
) -> Round:
    """What one pane asks for with these experts switched on."""
    chips = player.switches_of(model)[0]
    chips["experts"] = [{**one, "on": one["name"] in experts} for one in chips["experts"]]
    sampling = {"max_tokens": max_tokens, "temperature": 0.0, "seed": 1}
    return Round("the sea", sampling, [PaneRequest(model, chips, parts or [])], without=without)


def frames(player: Player, model: str | None, experts: list[str], max_tokens: int = 3, *switches: Any) -> list[str]:
    async def collect() -> list[str]:
        request = form_values(player, model, experts, max_tokens, *switches)
        return [frame_html(frame) async for frame in player.answer(request, 0)]

    return asyncio.run(collect())


def inputs(
    player: Player,
    *models: str,
    max_tokens: int = 3,
    blind: bool = False,
    answer_format: str = "Completion",
    prompt: str = "the sea",
    system: str = "",
) -> list[Any]:
    """The values of the page's components with these models in its panes."""
    panes = [value for model in models for value in (model, player.switches_of(model)[0], [])]
    return [answer_format, len(models), blind, prompt, system, max_tokens, 0.0, 1.0, 0, 1, False, *panes]


def played(player: Player, memory: Memory, *values: Any, **options: Any) -> tuple[list[list[Any]], Memory]:
    """All updates of a round without that of the prompt, and the memory after it."""

    async def collect() -> list[list[Any]]:
        return [update[:-1] async for update in player.play(memory, *values, **options)]

    drawn = asyncio.run(collect())
    return drawn, next(update[-1] for update in reversed(drawn) if isinstance(update[-1], Memory))


def test_everything_generated_and_named_is_escaped() -> None:
    page = answer_html(answer_of(0.9).with_event(Done("stop", 1, 1, HOSTILE))) + problem_html(HOSTILE)

    assert "<img" not in page
    assert page.count(html.escape("<img src=x")) >= 6


def test_a_text_that_several_experts_wrote_leads_to_posteriors_and_a_long_one_says_how_much_of_it() -> None:
    answer = answer_of(0.9)
    assert "data-studio" not in answer_html(answer)
    ended = answer.with_event(Done("stop", 1, 1, ""))
    assert "Read this text in Posteriors" in answer_html(ended)
    assert f"posteriors?posterior.mixture=m&amp;posterior.text={quote(HOSTILE[:10], safe='')}" in answer_html(ended)
    long = replace(ended, prompt="a" * 5_000)
    assert "Read the first 2,000 characters in Posteriors" in answer_html(long)


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ((0.95, 0.9), "nearly all of the weight"),
        ((0.6, 0.7), "leads; the other experts also contribute"),
        ((0.5, 0.49), "No expert leads clearly"),
    ],
)
def test_the_sentence_says_what_the_weights_mean(weights: tuple[float, ...], sentence: str) -> None:
    assert sentence in answer_html(answer_of(*weights))


def test_a_full_queue_is_reported_in_a_sentence(mixed: Path, host: Any) -> None:
    servers = create_app(Settings(home=mixed, max_streams=1, max_waiting=0), host, playground=False).state.workbench

    def endless() -> Iterator[int]:
        while True:
            time.sleep(0.002)
            yield 1

    async def beside_another() -> list[str]:
        async with aclosing(servers.slots.stream(endless)) as other:
            await anext(other)
            player = Player(servers)
            return [frame_html(one) async for one in player.answer(form_values(player, "both", ["both/law"]), 0)]

    assert "The server is busy: every slot is taken. Try again in a moment." in asyncio.run(beside_another())[-1]


def test_mean_weights_and_led_tokens_are_counted() -> None:
    page = answer_html(answer_of(0.9, 0.8, 0.1))

    assert "60.0%" in page
    assert "40.0%" in page
    assert '<td class="number">2</td>' in page


def test_an_answer_ends_with_its_reason_and_its_files() -> None:
    page = answer_html(answer_of(0.9).with_event(Done("length", 1, 1)))

    assert "max tokens reached" in page
    assert "ab" * 32 in page


def test_a_pane_draws_its_answer_as_it_grows(player: Player) -> None:
    drawn = frames(player, "both", ["both/code", "both/law"])

    assert "Waiting" in drawn[0]
    assert "sea2" in drawn[-1]
    assert "75.0%" in drawn[-1]


def test_an_expert_that_is_switched_off_takes_no_part(player: Player) -> None:
    last = frames(player, "both", ["both/law"])[-1]

    assert "both/law</b> is the only expert" in last


def test_an_expert_that_is_off_in_the_mixture_is_offered_unticked(player: Player) -> None:
    with transaction() as session:
        mixtures.set_active(session, "both", "both/law", False)

    offered, parts = player.switches_of("both")

    assert [one["name"] for one in offered["experts"]] == ["both/code", "both/law"]
    assert [one["name"] for one in offered["experts"] if one["on"]] == ["both/code"]
    assert not parts["visible"]
    assert "75.0%" in frames(player, "both", ["both/code", "both/law"])[-1]


@pytest.mark.usefixtures("composed")
def test_parts_are_offered_ticked_and_switched_for_this_pane(player: Player) -> None:
    _, parts = player.switches_of("apps")
    assert parts["visible"]
    assert [label for label, _ in parts["choices"]] == ["code", "law"]
    code, law = parts["value"]

    both, one, none = (frames(player, "apps", ["apps/composed"], 3, ticked)[-1] for ticked in ([code, law], [law], []))

    assert re.findall(r"(backbone|code|law)</td>.*?([\d.]+%)", both) == [
        ("backbone", "37.5%"),
        ("code", "31.2%"),
        ("law", "31.2%"),
    ]
    shown = re.findall(r"(code[^<]*|law[^<]*)</td>.*?([\d.]+%)", one)
    assert shown == [("code (off)", "0.0%"), ("law", "62.5%")]
    assert "apps/composed (backbone only)" in none
    assert both.count('class="strip"') == 3 * 3  # the mean and two blocks
    assert "0.25 / 0.38" in both


def known(**experts: list[str]) -> list[Model]:
    return [
        Model(id=name.replace("_", "/"), created=0, kind="mixture", experts=own, members=own, parts={})
        for name, own in experts.items()
    ]


def test_two_panes_open_on_what_is_worth_opening_and_say_different_things() -> None:
    models = known(a=["a/law"], b=["b/python", "b/sea"], c=["c/law"], a_law=["a/law"], b_sea=["b/sea"])
    assert first_choice(models, {}, ["b", "c", "a"])[:2] == ["b", "b/sea"]
    assert first_choice(models, {}, ["c", "b", "a"])[:2] == ["c", "b"]
    assert first_choice(known(a=["a/law"], a_law=["a/law"]), {}, ["a"]) == ["a"] * 4
    assert first_choice(models, {"left": "a", "right": "a/law"}, ["b"])[:2] == ["a", "a/law"]


def test_no_two_of_four_panes_open_on_the_same_model_while_there_are_others() -> None:
    models = known(a=["a/law"], b=["b/python", "b/sea"], c=["c/law"], a_law=["a/law"], b_sea=["b/sea"])
    assert first_choice(models, {}, ["b", "c", "a"]) == ["b", "b/sea", "c", "a"]
    assert first_choice(models[:3], {}, ["b", "c", "a"])[2:] == ["c", "a"]
    assert first_choice(known(a=["a/law"], c=["c/law"]), {}, ["a"]) == ["a", "c", "a", "c"]


def by_itself(*gates: GateWeights) -> str:
    """What a pane shows of an expert with two parts that says a word for each of these weights of its gates."""
    answer = PaneAnswer("the", ["law", "apps"], manifest(apps=["code", HOSTILE]), parts={"apps": ["code", HOSTILE]})
    for number, shown in enumerate(gates):
        answer = answer.with_event(Token(number, f" word{number}", -1.0, {"apps": 1.0}, {"apps": shown}))
    return answer_html(answer)


def test_words_of_a_single_expert_with_parts_have_the_colour_of_backbone_or_part() -> None:
    drawn = by_itself(
        GateWeights((0.75, 0.5), {"code": (0.25, 0.0), HOSTILE: (0.0, 0.5)}),
        GateWeights((0.5, 0.0), {"code": (0.0, 0.0), HOSTILE: (0.5, 1.0)}),
    )
    data = json.loads(html.unescape(re.search(r'data-tokens="([^"]*)"', drawn)[1]))
    words = {text: data["experts"][lead]["colour"] for text, lead in zip(data["tokens"], data["leads"], strict=True)}
    assert words == {" word0": GREY, " word1": look_of(1).colour}
    legend = {text: colour for colour, text in re.findall(r"background:(#\w{6})[^>]*>([^<]* \d+ %)</span>", drawn)}
    assert legend == {
        "backbone 50 %": GREY,
        "code 0 %": look_of(0).colour,
        f"{html.escape(HOSTILE)} 50 %": look_of(1).colour,
    }
    assert "Words coloured by the leading part of apps, or its backbone" in drawn
    assert HOSTILE not in drawn
    assert "Block 2" in drawn


def test_beside_another_expert_words_wear_the_colours_of_experts() -> None:
    assert "Words coloured by the leading part" not in answer_html(answer_of(0.9, 0.2))


@pytest.mark.usefixtures("composed")
def test_a_pane_without_parts_shows_no_gates(player: Player) -> None:
    assert "Inside" not in frames(player, "both", ["both/law"])[-1]


@pytest.mark.usefixtures("composed")
def test_what_would_change_without_each_is_read_and_not_drawn_anew(player: Player, host: Any) -> None:
    _, parts = player.switches_of("apps")
    requested: list[Any] = []
    read = host.posterior

    def posterior(plan: Any, text: str) -> TextReading:
        requested.append((plan.experts[0].name, plan.experts[0].parts, text))
        answer = read(plan, text)
        logprobs = [logprob * (3 - len(plan.experts[0].parts or ())) for logprob in answer.logprobs]
        return replace(answer, logprobs=logprobs)

    host.posterior = posterior
    last = frames(player, "apps", ["apps/composed"], 2, parts["value"], True)[-1]

    text = "the sea sea0 sea1"
    assert requested == [("apps/composed", left, text) for left in (("code", "law"), ("law",), ("code",))]
    assert "apps/composed: law" in last
    assert "&#x27;the&#x27;</code> (-1.50 nats)" in last
    full, without = math.exp(3 / 4), math.exp(6 / 4)
    assert f"{without / full - 1:+.1%}" in last
    last = frames(player, "both", ["both/code", "both/law"], 2, [], True)[-1]
    assert "<caption>Ablation</caption>" in last
    assert "<td>both/code</td>" in last
    assert "Nothing can be left out" in frames(player, "both", ["both/law"], 2, [], True)[-1]


@pytest.mark.parametrize(
    ("model", "experts", "max_tokens", "words"),
    [
        (None, [], 3, "Choose a mixture"),
        ("nobody", [], 3, "nobody"),
        ("both", [], 3, "has no active expert"),
        ("both", ["both/law"], 0, "max_tokens must be at least 1"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_sentence(
    player: Player, model: str | None, experts: list[str], max_tokens: float, words: str
) -> None:
    assert words in frames(player, model, experts, max_tokens)[-1]


def test_a_mistake_of_ours_shows_no_inner_parts(player: Player, host: Any) -> None:
    host.fail_at = 0

    assert "See its log" in frames(player, "both", ["both/law"])[-1]


def test_both_panes_stream_at_the_same_time_each_its_own_answer(player: Player, host: Any) -> None:
    host.seconds = 0.03
    drawn, _ = played(player, Memory(), *inputs(player, "both/code", "both/law", max_tokens=8))

    last = [next(frame[place] for frame in reversed(drawn) if isinstance(frame[place], str)) for place in (0, 1)]
    assert ["both/code</b> is the only expert" in last[0], "both/law</b> is the only expert" in last[1]] == [True, True]
    assert host.most_open == 2


def test_a_pane_that_is_stopped_frees_its_slot(player: Player, host: Any, wait_until: Any) -> None:
    host.seconds = 0.005

    async def stop() -> None:
        frames = player.answer(form_values(player, "both", ["both/law"], 100_000), 0)
        await anext(frames)
        await anext(frames)
        await frames.aclose()

    asyncio.run(stop())

    wait_until(lambda: host.open == 0)


def test_the_page_requests_nothing_from_other_servers(page: TestClient) -> None:
    answer = page.get("/play/")

    assert answer.status_code == 200
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "fonts.googleapis.com" not in answer.text
    assert "fonts.googleapis.com" not in page.get("/play/theme.css").text


def test_the_front_door_leads_to_the_playground(page: TestClient) -> None:
    assert page.get("/", follow_redirects=False).headers["location"] == "/play/"
    assert page.get("/favicon.ico").headers["content-type"] == "image/svg+xml"


def test_the_playground_says_nothing_to_gradio(page: TestClient) -> None:
    config = page.get("/play/config").json()

    assert config["analytics_enabled"] is False
    assert config.get("run_history") in (False, None)


def test_weights_that_were_moved_are_part_of_the_request(player: Player) -> None:
    chips = player.switches_of("both")[0]
    assert [one["weight"] for one in chips["experts"]] == [1.0, 0.33]
    assert player.request_of(PaneRequest("both", chips)).weights is None
    chips["experts"][0] = {**chips["experts"][0], "weight": 0.33}
    assert player.request_of(PaneRequest("both", chips)).weights == {"both/code": 0.33, "both/law": 0.33}


def test_what_comes_next_is_read_for_every_pane_while_one_types(player: Player) -> None:
    async def collect() -> list[list[Any]]:
        return [update async for update in player.read_next(*inputs(player, "both", "both/law"))]

    updates = asyncio.run(collect())
    first, second = (
        next(update[place] for update in reversed(updates) if isinstance(update[place], str)) for place in (0, 1)
    )
    assert "75%" in first
    assert "25%" in first
    assert "100%" in second
    assert html.escape("' sea0'") in first


def test_while_a_setting_is_empty_nothing_is_generated_and_the_next_tokens_and_the_legend_are_shown(
    player: Player,
) -> None:
    values = inputs(player, "both", "both/law")
    values[5] = None  # the tokens

    async def collect(updates: Any) -> list[list[Any]]:
        return [update async for update in updates]

    with pytest.raises(BadUsageError, match="A sampling setting is empty"):
        played(player, Memory(), *values)
    assert player.address(*values) == ""
    assert "both/law" in player.legend(*values)
    assert any("75%" in str(update[0]) for update in asyncio.run(collect(player.read_next(*values))))


def test_a_conversation_goes_on_in_each_pane(player: Player) -> None:
    _, memory = played(player, Memory(), *inputs(player, "both", "both/law", answer_format="Chat"))
    drawn, memory = played(player, memory, *inputs(player, "both", "both/law", answer_format="Chat"))
    assert [turn["role"] for turn in memory.turns[1]] == ["user", "assistant"] * 2
    last = next(update[1] for update in reversed(drawn) if isinstance(update[1], str))
    assert html.unescape(last).count('"kind": "turn"') == 3  # the first question and answer, and the second question


def test_a_question_leaves_the_field_with_the_first_token_and_is_kept_if_nobody_answers(
    player: Player, host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def prompts(*models: str, **options: Any) -> list[Any]:
        values = inputs(player, *models, **options)
        return [update[-1] async for update in player.play(Memory(), *values)]

    sent = asyncio.run(prompts("both", "both/law", answer_format="Chat"))
    assert [prompt for prompt in sent if isinstance(prompt, str)] == [""]
    assert not any(isinstance(prompt, str) for prompt in asyncio.run(prompts("both", "both/law")))
    assert not any(isinstance(prompt, str) for prompt in asyncio.run(prompts("gone", answer_format="Chat")))

    def refuse(*_: Any) -> Iterator[Token]:
        raise ContextLengthExceededError("The prompt is too long.", "Shorten it.")
        yield

    monkeypatch.setattr(host, "stream", refuse)
    assert not any(isinstance(prompt, str) for prompt in asyncio.run(prompts("both", answer_format="Chat")))


def test_an_empty_message_is_refused(player: Player) -> None:
    with pytest.raises(BadUsageError, match="The message is empty"):
        played(player, Memory(), *inputs(player, "both", answer_format="Chat", prompt=" "))


@pytest.mark.parametrize("options", [{"only": 1}, {"without_of": 1}])
def test_the_last_question_is_answered_again_though_its_field_is_empty(player: Player, options: Any) -> None:
    chat = partial(inputs, player, "both", "both/law", answer_format="Chat")
    _, memory = played(player, Memory(), *chat())
    _, memory = played(player, memory, *chat(prompt="and the hill"))
    questions = memory.turns[1][:3]

    _, memory = played(player, memory, *chat(prompt=""), **options)

    assert memory.answers[1].turns == questions


def test_a_system_prompt_stands_first_in_the_conversation_and_can_be_changed(player: Player) -> None:
    chat = partial(inputs, player, "both", answer_format="Chat")
    _, memory = played(player, Memory(), *chat(system="Answer in verse."))
    _, memory = played(player, memory, *chat(system="Answer in prose."))
    _, memory = played(player, memory, *chat())

    roles = [turn["role"] for turn in memory.turns[0]]
    assert roles == ["system", *["user", "assistant"] * 3]
    assert memory.turns[0][0]["content"] == "Answer in prose."  # an empty field leaves it


def test_a_blind_conversation_keeps_who_stands_behind_which_letter(player: Player) -> None:
    values = inputs(player, "both", "both/law", "both/code", answer_format="Chat", blind=True)
    memory, orders = Memory(), []
    for _ in range(5):
        _, memory = played(player, memory, *values)
        orders.append(memory.order)
    assert len(set(orders)) == 1


def test_a_new_chat_starts_without_the_conversation(player: Player) -> None:
    _, memory = played(player, Memory(), *inputs(player, "both", answer_format="Chat"))
    memory, *panes, link, ratings = player.new_chat(memory)
    assert (memory, link, ratings) == (Memory(), "", "")
    assert panes == [hint_html()] * 4


def test_values_for_the_chat_template_reach_every_pane_until_they_are_taken_away(player: Player) -> None:
    values = inputs(player, "both", "both/law", answer_format="Chat")
    counts = []
    memory = Memory()
    for text in ("", '{"enable_thinking": true}', '{"enable_thinking": null}'):
        memory, fault = player.set_values(replace(memory, turns={}), text)
        assert not fault
        _, memory = played(player, memory, *values)
        counts.append([len(answer.prompt_ids) for answer in memory.answers.values()])
    assert counts == [[1, 1], [2, 2], [1, 1]]


@pytest.mark.parametrize("text", ["{", "[]", '{"messages": []}', '{"add_generation_prompt": false}', "[" * 99_999])
def test_values_that_cannot_be_used_are_named_and_none_are_set(player: Player, text: str) -> None:
    memory, fault = player.set_values(Memory(values={"enable_thinking": True}), text)
    assert memory.values == {}
    assert "cannot be used" in fault
