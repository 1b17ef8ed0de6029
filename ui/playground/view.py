"""What a pane of the playground shows: words tinted by their expert, mean weights, who made it. Pure.

Everything generated, every name and every sentence is escaped: a model may say anything.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.events import BACKBONE, Done, GateWeights, Token
from ui.generation.ablation import Without
from ui.playground.ablation_view import losses_html
from ui.playground.mode_gates import inside_html
from ui.present.charts.chart import colour_of
from ui.present.charts.trajectories import leaders, legend, tinted_words
from ui.present.text.mode_gates import rows_inside
from workbench.answers.posteriors import Manifest, ManifestExpert

ENDINGS = {
    "stop": "the model ended the document",
    "length": "as many tokens as were asked for",
    "phrase": "a stop phrase came",
}

GOES_ON = " …</p>"  # nothing generated can hold a tag, so this is found in a state alone

INTRODUCTION = """
<div id="introduction">
  <h1>Playground</h1>
  <p>The same prompt, answered twice: choose a mixture or an expert on each side, switch experts on and off,
  and compare. Each word wears the colour of the expert with the greatest weight behind it, the stronger the
  clearer its lead; rest on a word to read all weights. Where an expert with parts beside a frozen
  backbone (MoDE) speaks alone, the colour is that of its backbone or part.</p>
</div>"""

STYLE = """
.gradio-container { width: 100%; max-width: 1560px !important; margin: 0 auto !important; }
#introduction { padding: .25rem .25rem 0; }
#introduction h1 { font-size: 1.6rem; font-weight: 600; margin: 0 0 .25rem; }
#introduction p { color: var(--body-text-color-subdued); max-width: 95ch; margin: 0; }
#prompt textarea { font-family: var(--font-mono); font-size: .9rem; }
.pane { border: 1px solid var(--border-color-primary); border-radius: 12px; padding: 14px;
  background: var(--block-background-fill); }
.answer .said { font-family: var(--font-mono); font-size: .86rem; min-height: 9rem; padding: 12px 14px;
  border-radius: 8px; border: 1px solid var(--border-color-primary); background: var(--background-fill-primary);
  overflow-wrap: anywhere; }
.answer .prompt { color: var(--body-text-color-subdued); white-space: pre-wrap; }
.answer .said > div { display: inline; }
.answer .state { color: var(--body-text-color-subdued); font-size: .85rem; margin: .5rem 0 .9rem; }
.answer .hint { color: var(--body-text-color-subdued); padding: 2.5rem 1rem; text-align: center; }
.answer .problem { border-left: 4px solid var(--error-border-color); background: var(--error-background-fill);
  color: var(--body-text-color); padding: .75rem 1rem; border-radius: 6px; }
.answer .html-container { padding: 0; }
.answer table, .answer tr, .answer th, .answer td { border: none !important; }
.answer table { width: 100%; border-collapse: collapse; font-size: .88rem; }
.answer caption { text-align: left; font-weight: 600; padding-bottom: .35rem; }
.answer th { text-align: left; font-weight: 500; color: var(--body-text-color-subdued);
  padding: .15rem .6rem .15rem 0 !important; }
.answer td { padding: .2rem .6rem .2rem 0 !important; }
.answer td.bar { width: 42%; }
.answer td.number, .answer th.number { text-align: right; font-variant-numeric: tabular-nums; }
.answer .track { background: var(--background-fill-secondary); border-radius: 4px; height: .7rem;
  overflow: hidden; }
.answer .fill { height: 100%; border-radius: 4px; }
.answer .reading { margin: .6rem 0; color: var(--body-text-color-subdued); font-size: .85rem; }
.answer details { font-size: .82rem; color: var(--body-text-color-subdued); }
.answer details code { font-size: .78rem; overflow-wrap: anywhere; }
"""


@dataclass(frozen=True)
class Spoken:
    """An answer so far. `columns` are all experts there are, in the one order that gives them their colours.

    `parts` are all parts of those that have some; `without` is what the answer would lose, where that was asked for.
    """

    prompt: str
    columns: Sequence[str]
    manifest: Manifest
    texts: tuple[str, ...] = ()
    weights: tuple[tuple[float, ...], ...] = ()
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gates: tuple[Mapping[str, GateWeights], ...] = ()
    without: tuple[Without, ...] = ()
    done: Done | None = None
    seconds: float = 0.0

    def with_news(self, one: Token | Done) -> Spoken:
        """The answer with one more token, or with its end."""
        if isinstance(one, Done):
            return replace(self, done=one)
        row = tuple(one.weights.get(name, 0.0) for name in self.columns)
        return replace(
            self, texts=(*self.texts, one.text), weights=(*self.weights, row), gates=(*self.gates, one.gates)
        )

    @property
    def text(self) -> str:
        """The prompt with what was said after it."""
        return f"{self.prompt}{''.join(self.texts)}{self.done.text if self.done else ''}"

    def experts(self) -> list[str]:
        """The experts that take part."""
        return [expert.name for expert in self.manifest.experts]

    def mean(self, expert: str) -> float:
        """An expert's mean weight over the tokens so far."""
        column = self.columns.index(expert)
        return sum(row[column] for row in self.weights) / max(1, len(self.weights))


def answer_html(spoken: Spoken) -> str:
    """An answer as far as it is known."""
    words, colours = _tinted(spoken)
    rest = html.escape(spoken.done.text) if spoken.done else ""
    said = f'<div class="said"><span class="prompt">{html.escape(spoken.prompt)}</span>{words}{rest}</div>'
    table = _weights_table(spoken) if spoken.weights else ""
    inside = inside_html(spoken.texts, spoken.gates, spoken.parts, spoken.done is not None)
    return f"{said}{colours}{_state(spoken)}{table}{inside}{losses_html(spoken.without)}{_manifest(spoken.manifest)}"


def _tinted(spoken: Spoken) -> tuple[str, str]:
    """The answer's words on the colours of experts, or of the parts of one that speaks alone; and a legend of these."""
    expert = _alone_with_parts(spoken)
    if not expert:
        return tinted_words(spoken.texts, spoken.weights, spoken.columns) if spoken.texts else "", ""
    parts = spoken.parts[expert]
    names, rows = [BACKBONE, *parts], rows_inside(spoken.gates, expert, parts)
    told = (
        f"Each word is on the colour of what weighed most inside {html.escape(expert)}, its backbone or a part, on "
        "average over the blocks; the legend says of how many words."
    )
    return (tinted_words(spoken.texts, rows, names), f'{legend(names, leaders(rows))}<p class="reading">{told}</p>')


def _alone_with_parts(spoken: Spoken) -> str:
    """The expert with parts that said all of it; empty where there are others, or no word yet."""
    (expert, *others) = spoken.experts()
    is_alone = not others and expert in spoken.parts and bool(spoken.gates)
    return expert if is_alone and all(expert in one for one in spoken.gates) else ""


def problem_html(sentence: str) -> str:
    """What is wrong, in words."""
    return f'<div class="problem" role="alert">{html.escape(sentence)}</div>'


def stopped_html(page: str) -> str:
    """A pane as it was left, which no longer says that it goes on."""
    return page.replace(GOES_ON, ". Stopped.</p>")


def hint_html() -> str:
    """What an empty pane is for."""
    return '<div class="hint">The answer comes here, token by token.</div>'


def _state(spoken: Spoken) -> str:
    count = len(spoken.texts)
    tokens = f"{count} token{'' if count == 1 else 's'}"
    if not count and spoken.done is None:
        return f'<p class="state" role="status">Waiting for its turn, or for the weights to be loaded{GOES_ON}'
    speed = f"{count / spoken.seconds:.0f} tokens a second" if spoken.seconds > 0 else ""
    if spoken.done is None:
        return f'<p class="state" role="status">{tokens} so far, {speed}{GOES_ON}'
    why = ENDINGS.get(spoken.done.reason, spoken.done.reason)
    pace = f"{tokens} in {spoken.seconds:.1f} s" + (f", {speed}" if speed else "")
    return f'<p class="state" role="status">Ended: {why}. {pace}.</p>'


def _weights_table(spoken: Spoken) -> str:
    led = [spoken.columns[place] for place in leaders(spoken.weights)]
    ranked = sorted(spoken.experts(), key=lambda name: -spoken.mean(name))
    rows = "".join(_row(spoken, name, led.count(name)) for name in ranked)
    return (
        "<table><caption>Whose text is it?</caption><thead><tr><th>Expert</th><th></th>"
        '<th class="number">Mean weight</th><th class="number">Tokens led</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>{_reading(spoken, ranked)}"
    )


def _row(spoken: Spoken, name: str, num_led: int) -> str:
    mean, colour = spoken.mean(name), colour_of(spoken.columns.index(name))
    bar = f'<div class="track"><div class="fill" style="width:{mean:.1%};background:{colour}"></div></div>'
    return (
        f'<tr><td>{html.escape(name)}</td><td class="bar">{bar}</td>'
        f'<td class="number">{mean:.1%}</td><td class="number">{num_led}</td></tr>'
    )


def _reading(spoken: Spoken, ranked: Sequence[str]) -> str:
    """One sentence that says what the numbers mean."""
    first = html.escape(ranked[0])
    mean = spoken.mean(ranked[0])
    if len(ranked) == 1:
        sentence = f"<b>{first}</b> speaks alone here: every weight is 1."
    elif mean >= 0.8:
        sentence = f"Almost all of it is <b>{first}</b>: the gate is sure whose text this is."
    elif mean >= 0.6:
        sentence = f"<b>{first}</b> leads, and the others have a say."
    else:
        sentence = f"No expert owns this text; <b>{first}</b> is only the first among several."
    return f'<p class="reading">{sentence}</p>'


def _manifest(manifest: Manifest) -> str:
    experts = "".join(
        f"<li>{html.escape(_with_parts(one))}, weight {one.weight:.3g}: <code>{html.escape(one.sha256)}</code></li>"
        for one in manifest.experts
    ) + "".join(
        f"<li>shared parameters: <code>{html.escape(base)}</code></li>"
        for base in dict.fromkeys(one.base_sha256 for one in manifest.experts)
    )
    return (
        f"<details><summary>Which files made this</summary><ul>{experts}"
        f"<li>tokenizer: <code>{html.escape(manifest.tokenizer_sha256)}</code></li></ul></details>"
    )


def _with_parts(expert: ManifestExpert) -> str:
    """An expert's name, with the parts that were active where it has some."""
    parts = expert.parts
    return expert.name if parts is None else f"{expert.name} ({', '.join(parts) or 'its backbone alone'})"
