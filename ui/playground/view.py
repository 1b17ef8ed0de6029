"""The HTML of an answer: the data of its tokens, which the page draws, mean weights, files.

Generated text, names and sentences are escaped: a model may generate HTML.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Any
from urllib.parse import quote, urlencode

from engine.events import BACKBONE, Done, GateWeights, Token
from ui.addresses import MOST_LINKED
from ui.generation.ablation import Without
from ui.playground.mode_gates import inside_html, table_html
from ui.present.charts.colours import Looks, chip, in_order
from ui.present.charts.posteriors import legend
from ui.present.charts.token_view import Part, TokenData, TokenPassage, weight_data
from ui.present.pages import POSTERIORS
from ui.present.text.formatting import pluralize
from ui.present.text.mode_gates import rows_inside
from ui.present.text.posteriors import leaders
from workbench.answers.posteriors import Manifest, ManifestExpert

ENDINGS = {
    "stop": "end of document",
    "length": "max tokens reached",
    "phrase": "stop phrase reached",
}

END = 64  # characters of a prompt
LEGEND = 7  # experts named in a line
SHOWN = 24  # experts with a colour of their own in an answer
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")  # of a diff
PARTS: tuple[Part, ...] = ("text", "strip")
TINTS = "The mark before a run of words is its leading expert; a stronger tint is a larger weight."
CONTINUES = " …</p>"  # what a status line ends with while an answer grows; Stop ends it in the browser


@dataclass(frozen=True)
class PaneAnswer:
    """An answer so far. `columns` are its experts, whose weights are the rows of `weights`.

    `parts` are the parts of experts that have parts; `without` are the results of an ablation, if requested. Of a
    blind answer nothing is shown but its text. `replayed` says how a replay compares with what was stored.
    """

    prompt: str
    columns: Sequence[str]
    manifest: Manifest
    looks: Looks = field(default_factory=Looks)
    texts: tuple[str, ...] = ()
    weights: tuple[tuple[float, ...], ...] = ()
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gates: tuple[Mapping[str, GateWeights], ...] = ()
    without: tuple[Without, ...] = ()
    done: Done | None = None
    seconds: float = 0.0
    token_ids: tuple[int, ...] = ()
    prompt_ids: tuple[int, ...] = ()
    turns: tuple[Mapping[str, str], ...] = ()  # of a conversation: those before the answer
    values: Mapping[str, Any] = field(default_factory=dict)  # for the chat template of a conversation
    is_blind: bool = False
    num_before: int = 0  # generations that wait for a slot before this one
    replayed: str = ""
    is_stored: bool = False  # read from a comparison, not generated; `columns` are then its heaviest experts

    def with_event(self, event: Token | Done) -> PaneAnswer:
        """The answer with event more token, or with its end."""
        if isinstance(event, Done):
            return replace(self, done=event, manifest=self.manifest.after([event.drafting]))
        row = tuple(event.weights.get(name, 0.0) for name in self.columns)
        return replace(
            self,
            texts=(*self.texts, event.text),
            weights=(*self.weights, row),
            gates=(*self.gates, event.gates),
            token_ids=(*self.token_ids, event.id),
        )

    @property
    def text(self) -> str:
        """The prompt and the text generated so far."""
        return f"{self.prompt}{self.generated}"

    @property
    def generated(self) -> str:
        """The text generated so far."""
        return f"{''.join(self.texts)}{self.done.text if self.done else ''}"

    def experts(self) -> list[str]:
        """The experts of this answer."""
        return [expert.name for expert in self.manifest.experts]

    def mean(self, expert: str) -> float:
        """An expert's mean weight over the tokens so far."""
        column = self.columns.index(expert)
        return sum(row[column] for row in self.weights) / max(1, len(self.weights))


def answer_html(answer: PaneAnswer, diff: str = "") -> str:
    """The HTML of an answer; with the HTML of a diff in the place of its words, which then stand below it."""
    if answer.is_blind or not answer.texts:
        state = _state(answer)
        return f"{_text(answer)}{state}" if answer.is_blind else f"{_text(answer)}{state}{_more(answer)}"
    text = _tokens(answer)
    if diff:
        tints = f'<details class="more"><summary>Show tints</summary>{text}</details>'
        text = f'<div class="generated diff" tabindex="0" role="group" aria-label="Differences">{diff}</div>{tints}'
    return f"{text}{_state(answer)}{_more(answer)}"


def _before(answer: PaneAnswer) -> list[TokenPassage]:
    """The prompt or the conversation."""
    turns = [TokenPassage(kind="turn", who=turn["role"].capitalize(), text=turn["content"]) for turn in answer.turns]
    return turns or [TokenPassage(kind="prompt", who="", text=answer.prompt)]


def _text(answer: PaneAnswer) -> str:
    """The prompt or the conversation, then the text without its tokens."""
    parts = []
    for passage in _before(answer):
        who = f"<b>{html.escape(passage['who'])}</b> " if passage["who"] else ""
        parts.append(f'<span class="{passage["kind"]}">{who}{html.escape(passage["text"])}</span>')
    words = f"{''.join(parts)}{html.escape(answer.generated)}"
    return f'<div class="generated" tabindex="0" role="group" aria-label="Answer">{words}</div>'


def _tokens(answer: PaneAnswer) -> str:
    """Where the page draws the tokens, by their experts or by the parts of a single expert."""
    expert = _single_expert_with_parts(answer)
    names, looks = list(answer.columns), answer.looks
    rows: Sequence[Sequence[float]] = answer.weights
    if expert:
        names, looks = [BACKBONE, *answer.parts[expert]], in_order(answer.parts[expert])
        rows = rows_inside(answer.gates, expert, answer.parts[expert])
    data = weight_data(
        answer.texts, rows, names, [looks.expert(name) for name in names], label="Answer", parts=PARTS, num_shown=SHOWN
    )
    complete = TokenData(**data, before=_before(answer), after=answer.done.text if answer.done else "")
    return f'<div class="tokens" data-tokens="{html.escape(json.dumps(complete, ensure_ascii=False))}"></div>'


def _more(answer: PaneAnswer) -> str:
    """Below the text: an ablation, the weights, and the files."""
    table = _weights_table(answer) if answer.weights else ""
    inside = inside_html(answer.texts, answer.gates, answer.parts, answer.done is not None)
    details = f"{_legend_of_parts(answer)}{table}{inside}{_manifest(answer.manifest)}"
    return (
        f"{losses_html(answer.without)}{_posteriors_link(answer)}"
        f'<details class="more"><summary>Weights and files</summary><div tabindex="0">{details}</div></details>'
    )


def _posteriors_link(answer: PaneAnswer) -> str:
    """The way to the page that reads the text again, with a switch for each expert; the script adds the studio."""
    if answer.done is None or len(answer.columns) < 2:
        return ""
    text = answer.text.strip()
    chosen = {"posterior.mixture": answer.manifest.model, "posterior.text": text[:MOST_LINKED]}
    query = urlencode(chosen, quote_via=quote, errors="replace")
    address = html.escape(f"{POSTERIORS.address}?{query}", quote=True)
    some = f"the first {MOST_LINKED:,} characters" if len(text) > MOST_LINKED else "this text"
    return f'<p class="onward"><a href="#" data-studio="{address}" target="_blank">Read {some} in Posteriors</a></p>'


def _legend_of_parts(answer: PaneAnswer) -> str:
    """The legend of words that are coloured by the parts of a single expert."""
    if not answer.texts or not (expert := _single_expert_with_parts(answer)):
        return ""
    parts = answer.parts[expert]
    caption = (
        f"Words coloured by the leading part of {html.escape(expert)}, or its backbone, on average over the blocks. "
        "The legend gives the number of words of each."
    )
    leading = leaders(rows_inside(answer.gates, expert, parts))
    return f'{legend([BACKBONE, *parts], leading, in_order(parts))}<p class="reading">{caption}</p>'


def _single_expert_with_parts(answer: PaneAnswer) -> str:
    """The only expert of the answer, if it has parts and a word exists; else an empty string."""
    (expert, *others) = answer.experts()
    has_parts = not others and expert in answer.parts and bool(answer.gates)
    return expert if has_parts and all(expert in gate for gate in answer.gates) else ""


def problem_html(sentence: str) -> str:
    """The HTML of an error message."""
    return f'<div class="problem" role="alert">{html.escape(sentence)}</div>'


def plain_html(text: str) -> str:
    """The HTML of a stored text without its tokens."""
    words = f'<div class="generated" tabindex="0" role="group" aria-label="Stored answer">{html.escape(text)}</div>'
    return f'{words}<p class="state stored" data-done="yes">Stored answer.</p>'


def hint_html() -> str:
    """The HTML of an empty pane."""
    return '<div class="generated hint">The answer appears here, token by token.</div>'


def _state(answer: PaneAnswer) -> str:
    count = len(answer.texts)
    tokens = f"{count} token{'' if count == 1 else 's'}"
    if not count and answer.done is None:
        queue = f" ({answer.num_before} before you)" if answer.num_before else ""
        return f'<p class="state">Waiting for a free slot{queue}, or loading weights{CONTINUES}'
    speed = f"{count / answer.seconds:.0f} tokens/s" if answer.seconds > 0 else ""
    if answer.done is None:
        return f'<p class="state">{tokens} so far, {speed}{CONTINUES}'
    reason = ENDINGS.get(answer.done.reason, answer.done.reason)
    if answer.is_stored:
        return f'<p class="state stored" data-done="yes">Stored answer: {reason}. {tokens}.{_seed(answer)}</p>'
    replay = f" <b>{html.escape(answer.replayed)}</b>" if answer.replayed else ""
    pace = f"{tokens} in {answer.seconds:.1f} s" + (f", {speed}" if speed else "")
    return f'<p class="state" data-done="yes">Finished: {reason}. {pace}.{_seed(answer)}{replay}</p>'


def _seed(answer: PaneAnswer) -> str:
    seed = (answer.manifest.sampling or {}).get("seed")
    return "" if seed is None else f" Seed {int(seed)}."


def _weights_table(answer: PaneAnswer) -> str:
    led = [answer.columns[index] for index in leaders(answer.weights)]
    ranked = sorted(answer.columns, key=lambda name: -answer.mean(name))
    columns = [("Expert", ""), ("", "bar"), ("Mean weight", "number"), ("Tokens led", "number")]
    rows = (_weight_cells(answer, name, led.count(name)) for name in ranked)
    return table_html("Weights of the experts", columns, rows) + _reading(answer, ranked)


def _weight_cells(answer: PaneAnswer, name: str, num_led: int) -> list[str]:
    mean, look = answer.mean(name), answer.looks.expert(name)
    bar = f'<div class="track"><div class="fill" style="width:{mean:.1%};background:{look.colour}"></div></div>'
    return [f'{chip(look)} <span class="name">{html.escape(name)}</span>', bar, f"{mean:.1%}", str(num_led)]


def _reading(answer: PaneAnswer, ranked: Sequence[str]) -> str:
    """One sentence that explains the numbers."""
    first = html.escape(ranked[0])
    mean = answer.mean(ranked[0])
    if len(ranked) == 1:
        sentence = f"<b>{first}</b> is the only expert: every weight is 1."
    elif mean >= 0.8:
        sentence = f"<b>{first}</b> has nearly all of the weight."
    elif mean >= 0.6:
        sentence = f"<b>{first}</b> leads; the other experts also contribute."
    else:
        sentence = f"No expert leads clearly; <b>{first}</b> has the greatest mean weight."
    return f'<p class="reading">{sentence}</p>'


def _manifest(manifest: Manifest) -> str:
    experts = "".join(
        f"<li>{html.escape(_with_parts(used))}, weight {used.weight:.3g}: <code>{html.escape(used.sha256)}</code></li>"
        for used in manifest.experts
    ) + "".join(
        f"<li>shared parameters: <code>{html.escape(base)}</code></li>"
        for base in dict.fromkeys(expert.base_sha256 for expert in manifest.experts)
    )
    return (
        f"<details><summary>Model files</summary><ul>{experts}"
        f"<li>tokenizer: <code>{html.escape(manifest.tokenizer_sha256)}</code></li></ul></details>"
    )


def _with_parts(expert: ManifestExpert) -> str:
    """An expert's name, with its active parts if it has parts."""
    parts = expert.parts
    return expert.name if parts is None else f"{expert.name} ({', '.join(parts) or 'backbone only'})"


def legend_html(names: Sequence[str], looks: Looks) -> str:
    """The marks and colours of experts."""
    items = "".join(f"<span>{chip(looks.expert(name))} {html.escape(name)}</span>" for name in names[:LEGEND])
    others = f"<span>and {pluralize(len(names) - LEGEND, 'other')}</span>" if len(names) > LEGEND else ""
    return f"{items}{others}<i>{TINTS}</i>"


def next_html(token: Token, looks: Looks, prompt: str) -> str:
    """The weights of the experts at the next token, and the most probable ones in its place.

    The page hides them once its prompt is another: length (in UTF-16, as browsers count) and end say of which they are.
    """
    ranked = sorted(token.weights.items(), key=lambda pair: -pair[1])[:LEGEND]
    experts = " ".join(f"{chip(looks.expert(name))} {weight:.0%}" for name, weight in ranked if weight >= 0.005)
    words = ", ".join(
        f"<code>{html.escape(repr(candidate.text))}</code> {math.exp(candidate.logprob):.0%}"
        for candidate in token.candidates
    )
    length, end = len(prompt.encode("utf-16-le", "surrogatepass")) // 2, html.escape(prompt[-END:], quote=True)
    return f'<p class="next" data-length="{length}" data-end="{end}">Next: {experts}{" · " if words else ""}{words}</p>'


def losses_html(without: Sequence[Without]) -> str:
    """A table of perplexities, the greatest first; the first item of `without` is the text with all experts."""
    if not without:
        return ""
    full, *others = without
    ranked = sorted(others, key=lambda result: -result.perplexity)
    columns = [("Without", ""), ("Perplexity", "number"), ("Change", "number"), ("Greatest loss at", "")]
    table = table_html("Ablation", columns, [_loss_cells(result, full.perplexity) for result in ranked])
    nothing = "" if ranked else "Nothing can be left out: there is one expert, without parts. "
    return (
        f'{table}<p class="reading">{nothing}Prompt and answer, scored again with one '
        f"expert or part left out at a time. With all of them the perplexity is {full.perplexity:,.2f}; where it is "
        "lower without one, the text is likelier without it.</p>"
    )


def _loss_cells(result: Without, full: float) -> list[str]:
    word, nats = result.lost_most
    loss = f"<code>{html.escape(repr(word))}</code> ({nats:+.2f} nats)" if nats < 0 else "nowhere"
    return [html.escape(result.name), f"{result.perplexity:,.2f}", f"{result.perplexity / full - 1:+.1%}", loss]


def diff_html(before: PaneAnswer, after: PaneAnswer, letter: str) -> str:
    """The words of one answer against those of another, which stands in the pane of this letter."""
    if before.generated == after.generated:
        return f'<p class="same">The same text as {letter}.</p>'
    pairs = zip(before.token_ids, after.token_ids, strict=False)
    longest = min(len(before.token_ids), len(after.token_ids))
    same = next((place for place, (old, new) in enumerate(pairs) if old != new), longest)
    sentence = f"The first {same} tokens are those of {letter}. Then:" if same else f"Differs from {letter} at once:"
    changes = words_diff("".join(before.texts[same:]), "".join(after.texts[same:]))
    return f'<p class="same">{sentence}</p>{changes}'


def words_diff(before: str, after: str) -> str:
    """HTML of the words that went (`del`), came (`ins`) and stayed."""
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    parts = []
    for what, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        gone, came = html.escape("".join(old[start:end])), html.escape("".join(new[first:last]))
        if what == "equal":
            parts.append(came)
            continue
        parts += [f"<del>{gone}</del>"] if gone else []
        parts += [f"<ins>{came}</ins>"] if came else []
    return "".join(parts)
