"""The HTML of a pane: words coloured by their leading expert, mean weights, the files behind them.

Generated text, names and sentences are escaped: a model may generate HTML.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.events import BACKBONE, Done, GateWeights, Token
from ui.generation.ablation import Without
from ui.playground.ablation_view import losses_html
from ui.playground.mode_gates import inside_html
from ui.present.charts.colours import Looks, chip, in_order
from ui.present.charts.trajectories import leaders, legend, tinted_words
from ui.present.text.mode_gates import rows_inside
from workbench.answers.posteriors import Manifest, ManifestExpert

ENDINGS = {
    "stop": "end of document",
    "length": "max tokens reached",
    "phrase": "stop phrase reached",
}

CONTINUES = " …</p>"  # generated text is escaped, so only a status line contains this

INTRODUCTION = """
<div id="introduction">
  <h1>Playground</h1>
  <p>Compare two answers to one prompt: choose a mixture or an expert on each side, and enable or disable experts.
  Words are coloured by their leading expert; the greater its weight, the stronger the colour. Hover over a word
  to see all weights. The words of a single expert with parts (MoDE) are coloured by its backbone or part.</p>
</div>"""

STYLE = """
.gradio-container { width: 100%; max-width: 1560px !important; margin: 0 auto !important; }
#introduction { padding: .25rem .25rem 0; }
#introduction h1 { font-size: 1.6rem; font-weight: 600; margin: 0 0 .25rem; }
#introduction p { color: var(--body-text-color-subdued); max-width: 95ch; margin: 0; }
#prompt textarea { font-family: var(--font-mono); font-size: .9rem; }
.pane { border: 1px solid var(--border-color-primary); border-radius: 12px; padding: 14px;
  background: var(--block-background-fill); }
.answer .generated { font-family: var(--font-mono); font-size: .86rem; min-height: 9rem; padding: 12px 14px;
  border-radius: 8px; border: 1px solid var(--border-color-primary); background: var(--background-fill-primary);
  overflow-wrap: anywhere; }
.answer .prompt { color: var(--body-text-color-subdued); white-space: pre-wrap; }
.answer .generated > div { display: inline; }
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
class Answer:
    """An answer so far. `columns` are all experts in the registry, `looks` their colours and marks.

    `parts` are the parts of experts that have parts; `without` are the results of an ablation, if requested.
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

    def with_event(self, one: Token | Done) -> Answer:
        """The answer with one more token, or with its end."""
        if isinstance(one, Done):
            return replace(self, done=one)
        row = tuple(one.weights.get(name, 0.0) for name in self.columns)
        return replace(
            self, texts=(*self.texts, one.text), weights=(*self.weights, row), gates=(*self.gates, one.gates)
        )

    @property
    def text(self) -> str:
        """The prompt and the text generated so far."""
        return f"{self.prompt}{''.join(self.texts)}{self.done.text if self.done else ''}"

    def experts(self) -> list[str]:
        """The experts of this answer."""
        return [expert.name for expert in self.manifest.experts]

    def mean(self, expert: str) -> float:
        """An expert's mean weight over the tokens so far."""
        column = self.columns.index(expert)
        return sum(row[column] for row in self.weights) / max(1, len(self.weights))


def answer_html(answer: Answer) -> str:
    """The HTML of an answer."""
    words, colours = _tinted(answer)
    rest = html.escape(answer.done.text) if answer.done else ""
    text = f'<div class="generated"><span class="prompt">{html.escape(answer.prompt)}</span>{words}{rest}</div>'
    table = _weights_table(answer) if answer.weights else ""
    inside = inside_html(answer.texts, answer.gates, answer.parts, answer.done is not None)
    return f"{text}{colours}{_state(answer)}{table}{inside}{losses_html(answer.without)}{_manifest(answer.manifest)}"


def _tinted(answer: Answer) -> tuple[str, str]:
    """The words coloured by expert, or by the parts of a single expert, with a legend of the parts."""
    expert = _single_expert_with_parts(answer)
    if not expert:
        return tinted_words(answer.texts, answer.weights, answer.columns, answer.looks) if answer.texts else "", ""
    parts = answer.parts[expert]
    looks = in_order(parts)
    names, rows = [BACKBONE, *parts], rows_inside(answer.gates, expert, parts)
    caption = (
        f"Words coloured by the leading part of {html.escape(expert)}, or its backbone, on average over the blocks. "
        "The legend gives the number of words of each."
    )
    return (
        tinted_words(answer.texts, rows, names, looks),
        f'{legend(names, leaders(rows), looks)}<p class="reading">{caption}</p>',
    )


def _single_expert_with_parts(answer: Answer) -> str:
    """The only expert of the answer, if it has parts and a word exists; else an empty string."""
    (expert, *others) = answer.experts()
    has_parts = not others and expert in answer.parts and bool(answer.gates)
    return expert if has_parts and all(expert in one for one in answer.gates) else ""


def problem_html(sentence: str) -> str:
    """The HTML of an error message."""
    return f'<div class="problem" role="alert">{html.escape(sentence)}</div>'


def stopped_html(page: str) -> str:
    """A pane after Stop, with its status line ended."""
    return page.replace(CONTINUES, ". Stopped.</p>")


def hint_html() -> str:
    """The HTML of an empty pane."""
    return '<div class="hint">The answer appears here, token by token.</div>'


def _state(answer: Answer) -> str:
    count = len(answer.texts)
    tokens = f"{count} token{'' if count == 1 else 's'}"
    if not count and answer.done is None:
        return f'<p class="state" role="status">Waiting for a free slot, or loading weights{CONTINUES}'
    speed = f"{count / answer.seconds:.0f} tokens/s" if answer.seconds > 0 else ""
    if answer.done is None:
        return f'<p class="state" role="status">{tokens} so far, {speed}{CONTINUES}'
    reason = ENDINGS.get(answer.done.reason, answer.done.reason)
    pace = f"{tokens} in {answer.seconds:.1f} s" + (f", {speed}" if speed else "")
    return f'<p class="state" role="status">Finished: {reason}. {pace}.</p>'


def _weights_table(answer: Answer) -> str:
    led = [answer.columns[place] for place in leaders(answer.weights)]
    ranked = sorted(answer.experts(), key=lambda name: -answer.mean(name))
    rows = "".join(_row(answer, name, led.count(name)) for name in ranked)
    return (
        "<table><caption>Weights of the experts</caption><thead><tr><th>Expert</th><th></th>"
        '<th class="number">Mean weight</th><th class="number">Tokens led</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>{_reading(answer, ranked)}"
    )


def _row(answer: Answer, name: str, num_led: int) -> str:
    mean, look = answer.mean(name), answer.looks.expert(name)
    bar = f'<div class="track"><div class="fill" style="width:{mean:.1%};background:{look.colour}"></div></div>'
    return (
        f'<tr><td>{chip(look)} {html.escape(name)}</td><td class="bar">{bar}</td>'
        f'<td class="number">{mean:.1%}</td><td class="number">{num_led}</td></tr>'
    )


def _reading(answer: Answer, ranked: Sequence[str]) -> str:
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
        f"<li>{html.escape(_with_parts(one))}, weight {one.weight:.3g}: <code>{html.escape(one.sha256)}</code></li>"
        for one in manifest.experts
    ) + "".join(
        f"<li>shared parameters: <code>{html.escape(base)}</code></li>"
        for base in dict.fromkeys(one.base_sha256 for one in manifest.experts)
    )
    return (
        f"<details><summary>Model files</summary><ul>{experts}"
        f"<li>tokenizer: <code>{html.escape(manifest.tokenizer_sha256)}</code></li></ul></details>"
    )


def _with_parts(expert: ManifestExpert) -> str:
    """An expert's name, with its active parts if it has parts."""
    parts = expert.parts
    return expert.name if parts is None else f"{expert.name} ({', '.join(parts) or 'backbone only'})"
