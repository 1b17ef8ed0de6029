"""Model cards: the hub's own library reads the metadata back, and no name becomes Markdown, HTML or YAML."""

from __future__ import annotations

from dataclasses import replace

import pytest
from huggingface_hub import EvalResult, ModelCard
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from workbench.exports.facts import DomainFacts, ExpertFacts, Score
from workbench.exports.model_card import CardFacts, model_card, one_line

LAW = ExpertFacts(
    name="duo/law",
    method="lora",
    method_title="LoRA",
    paper="Hu et al. 2021",
    seed="little",
    seed_on_hub="HuggingFaceTB/SmolLM2-135M",
    parent="",
    num_parameters=12_345,
    domains=(DomainFacts("law", 60, 3_600, 20_000, "CC BY 4.0", "pile-of-law/pile-of-law"),),
    unknown_domains=(),
    options=(("learning_rate", "0.02"), ("lora.rank", "8")),
    scores=(Score("law", "dev", 300, 5.5), Score("law", "test", 400, 5.25)),
    certificates=("No other file changed.",),
    code_version="0.1.0",
)
CARD = CardFacts("duo/law", "peft", (LAW,))
NAMES = [
    "a\n---\nlicense: mit\n---\n",
    "---",
    "x: [y, {z}] # &a *b !!python/object",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "[click](javascript:alert(1)) ![x](http://e.example/x.png)",
    "a | b | c",
    "`code` **bold** ~~gone~~ http://e.example www.e.example &lt;",
    "# title\n\n- item",
    "\\",
    "\u2028\x85\x00",
    "null",
]


def tokens(text: str) -> list[Token]:
    """All tokens of a card's body as a browser would see them: GitHub's Markdown, with HTML and links."""
    body = ModelCard(text).text
    parsed = MarkdownIt("commonmark", {"linkify": False}).enable(["table", "strikethrough"]).parse(body)
    return [inner for one in parsed for inner in (one, *(one.children or ()))]


def test_a_card_says_what_the_weights_are_reproducible_from() -> None:
    assert "reproducible from" not in model_card(CARD)
    known = replace(CARD, experts=(replace(LAW, reproducible_from="the spec of its job, 1 thread"),))
    assert "Its weights are reproducible from the spec of its job\\, 1 thread" in model_card(known)


def test_the_hub_reads_the_metadata() -> None:
    card = ModelCard(model_card(CARD))
    assert card.data.to_dict() | {"model-index": None} == {
        "base_model": ["HuggingFaceTB/SmolLM2-135M"],
        "base_model_relation": "adapter",
        "datasets": ["pile-of-law/pile-of-law"],
        "library_name": "peft",
        "pipeline_tag": "text-generation",
        "tags": ["expert-workbench", "lora"],
        "model-index": None,
    }
    assert card.data.model_name == "duo/law"
    assert [(result.metric_type, result.metric_value, result.dataset_split) for result in card.data.eval_results] == [
        ("perplexity", 5.5, "dev"),
        ("perplexity", 5.25, "test"),
    ]
    assert isinstance(card.data.eval_results[0], EvalResult)


def test_the_body_says_how_the_model_was_made_and_what_it_scores() -> None:
    text = "".join(token.content for token in tokens(model_card(CARD)) if token.type == "text")
    for words in ("LoRA", "Hu et al. 2021", "little", "12,345 parameters", "learning_rate", "3,600", "CC BY 4.0"):
        assert words in text
    for words in ("Perplexity per token", "5.2500", "400", "No other file changed.", "dev and test were held out"):
        assert words in text


def test_several_experts_are_a_merge_without_scores_of_their_own() -> None:
    other = replace(LAW, name="duo/sea", seed_on_hub="")
    card = ModelCard(model_card(CardFacts("duo", "moe", (LAW, other), (0.75, 0.25), "Added networks.")))
    assert (card.data.base_model_relation, card.data.eval_results) == ("merge", None)
    assert "The merged model was not scored" in card.text
    assert "0\\.75" in card.text


def test_what_is_not_known_is_left_out() -> None:
    bare = replace(LAW, seed_on_hub="", seed="", domains=(), scores=(), certificates=(), options=(), code_version="")
    card = ModelCard(model_card(CardFacts("bare", "hf", (bare,))))
    assert set(card.data.to_dict()) == {"library_name", "pipeline_tag", "tags"}
    assert "Perplexity" not in card.text
    assert "language" not in card.content


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"is_seed": True}, "The seed model little as it is: no expert, and nothing of it was trained here."),
        (
            {"is_imported": True},
            r"An expert by the method LoRA (Hu et al\. 2021), trained elsewhere and imported here.",
        ),
        ({"paper": ""}, "An expert by the method LoRA."),
    ],
)
def test_no_text_is_named_where_none_is_known(change: dict[str, object], words: str) -> None:
    card = model_card(CardFacts("one", "hf", (replace(LAW, domains=(), unknown_domains=(), **change),)))  # type: ignore[arg-type]
    assert f"\n{words}\n" in card
    assert "()" not in card


def _hostile(name: str) -> CardFacts:
    domain = replace(LAW.domains[0], name=name, licence=name)
    score = replace(LAW.scores[0], domain=name)
    expert = replace(
        LAW,
        name=name,
        seed=name,
        parent=name,
        domains=(domain,),
        unknown_domains=(name,),
        options=((name, name),),
        scores=(score,),
        certificates=(name,),
    )
    return CardFacts(name, "hf", (expert,))


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
@given(st.sampled_from(NAMES) | st.text(max_size=40))
@example("---\nlicense: mit")
@example("     spaces, then code")
def test_names_are_data(name: str) -> None:
    text = model_card(_hostile(name))
    card, plain = ModelCard(text), ModelCard(model_card(_hostile("law")))
    assert card.data.model_name == one_line(name)
    assert card.data.eval_results[0].dataset_name == one_line(name)
    assert set(card.data.to_dict()) == set(plain.data.to_dict())  # no key was added, and none replaced
    assert [token.type for token in tokens(text) if token.type not in ("text", "text_special", "softbreak")] == [
        token.type for token in tokens(model_card(_hostile("law"))) if token.type not in ("text", "text_special")
    ]
