"""Another program measures a mixture over HTTP: lm-eval's `local-completions`, as it comes, finds our own numbers."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.config import SamplingConfig
from engine.events import Token
from engine.loading.host import Host
from engine.text.tokenizer import load_tokenizer
from tests.api_server import serve_api, unused_port
from tests.journeys.conftest import planned
from ui.api.app import create_app
from workbench.questions.perplexities import mix_scores
from workbench.registry.corpora import preview_documents
from workbench.registry.database import reading
from workbench.settings import get_settings
from workbench.store.storage import get_storage

from .conftest import Do

TEXTS = ["the court held that the appeal is dismissed", "bake in a hot oven – until golden", "law"]
LABELS = ["judge", "butter"]
TASKS: dict[str, dict[str, Any]] = {
    "rolling": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "byte_perplexity"}],
    },
    "choice": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{text}}",
        "doc_to_target": 0,
        "doc_to_choice": LABELS,
        "metric_list": [{"metric": "acc"}],
    },
    "generate": {
        "output_type": "generate_until",
        "doc_to_text": "{{text}}",
        "doc_to_target": "",
        "generation_kwargs": {"until": ["."], "max_gen_toks": 9},
        "metric_list": [{"metric": "bypass"}],
    },
}


@pytest.fixture
def url(trained: Do, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where the API answers, with the models' own weights."""
    assert trained
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    port = unused_port()
    with serve_api(create_app(get_settings(), playground=False), port):
        yield f"http://127.0.0.1:{port}/v1/completions"


def model_args(url: str) -> dict[str, Any]:
    """What lm-eval must be given for a model; all else is its default."""
    return {"model": "small", "base_url": url, "tokenizer": str(planned("small").base.folder), "max_length": 128}


def measured(url: str, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What lm-eval finds of every text, by task."""
    texts = folder / "texts.jsonl"
    texts.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS), encoding="utf-8")
    for name, task in TASKS.items():
        shared = {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(texts)}}}
        (folder / f"{name}.yaml").write_text(json.dumps({**shared, "test_split": "test", **task}), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "lm_eval",
        "run",
        "--model",
        "local-completions",
        "--tasks",
        ",".join(TASKS),
        "--model_args",
        ",".join(f"{name}={value}" for name, value in model_args(url).items()),
        "--include_path",
        str(folder),
        "--output_path",
        str(folder / "found"),
        "--log_samples",
    ]
    env = {**os.environ, "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hub")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result = {}
    for name in TASKS:
        [path] = (folder / "found").rglob(f"samples_{name}_*.jsonl")
        result[name] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return result


def local_completions(url: str, **options: Any) -> Any:
    """lm-eval's model in this process, which asks for four texts at once."""
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    return LocalCompletionsAPI(**model_args(url), batch_size=4, **options)


def echoed(host: Host, ids: list[int], num_context: int) -> float:
    """What the mixture gives the last of some ids, read exactly as they are."""
    return math.fsum(one or 0.0 for one in host.echo(planned("small"), ids).logprobs[num_context:])


def likelihood(host: Host, text: str) -> float:
    """What the mixture gives a text from its first token on."""
    return math.fsum(host.posterior(planned("small"), text).logprobs)


@pytest.mark.slow
def test_lm_eval_as_it_comes_finds_our_own_numbers(url: str, tmp_path: Path) -> None:
    result, host, tokenizer = measured(url, tmp_path), Host(device="cpu"), load_tokenizer(planned("small").base.folder)
    for place, text in enumerate(TEXTS):
        [[rolling]], choices, [[message]] = (result[task][place]["resps"] for task in TASKS)
        ids = tokenizer.encode(text)
        assert float(rolling) == pytest.approx(likelihood(host, text), abs=1e-4)
        expected = [echoed(host, tokenizer.encode(f"{text} {label}"), len(ids)) for label in LABELS]
        assert [float(one) for [[one, _]] in choices] == pytest.approx(expected, abs=1e-4)
        events = host.stream(planned("small"), ids, SamplingConfig(max_tokens=9, temperature=0), (".", "<s>"))
        assert message == "".join(event.text for event in events)


@pytest.mark.filterwarnings("ignore")  # lm-eval's own
@pytest.mark.parametrize("is_of_ids", [True, False], ids=["ids", "texts"])
def test_lm_eval_in_batches_finds_our_own_numbers(url: str, is_of_ids: bool) -> None:
    from lm_eval.api.instance import Instance

    model, host = local_completions(url, tokenized_requests=is_of_ids), Host(device="cpu")
    requested = [Instance("loglikelihood_rolling", {}, (text,), number) for number, text in enumerate(TEXTS)]
    expected = [likelihood(host, text) for text in TEXTS]
    assert model.loglikelihood_rolling(requested) == pytest.approx(expected, abs=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_lm_eval_knows_what_greedy_decoding_says(url: str) -> None:
    model, host = local_completions(url), Host(device="cpu")
    prompt = [model.prefix_token_id, *model.tok_encode(TEXTS[0])]
    events = host.stream(planned("small"), prompt, SamplingConfig(max_tokens=4, temperature=0))
    greedy = [event.id for event in events if isinstance(event, Token)]
    other = [greedy[0] + 1, *greedy[1:]]
    shown = model._loglikelihood_tokens([(None, prompt, greedy), (None, prompt, other)])
    assert [is_greedy for _, is_greedy in shown] == [True, False]


@pytest.mark.filterwarnings("ignore")
def test_lm_eval_over_the_blocks_of_an_evaluation_finds_the_stored_perplexity(url: str, trained: Do) -> None:
    trained({"kind": "evaluate", "mixture": "small", "block_size": 32})
    with reading() as session:
        rows = mix_scores(session, get_storage(), "small").domains
        [stored] = [row for row in rows if row.domain == "kitchen"]
        documents = preview_documents(session, get_storage(), "kitchen", split="test", limit=1000)
    tokenizer = load_tokenizer(planned("small").base.folder)
    ids = [token for one in documents for token in (tokenizer.bos_id, *tokenizer.encode(one.text))]
    blocks = [ids[start : start + 33] for start in range(0, len(ids) - 1, 32)]
    shown = local_completions(url)._loglikelihood_tokens([(None, block[:1], block[1:]) for block in blocks])
    assert stored.num_tokens == len(ids) - 1
    assert -sum(nats for nats, _ in shown) / len(ids[1:]) == pytest.approx(math.log(stored.perplexity), abs=1e-4)
