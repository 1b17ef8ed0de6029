"""An adapter that was trained with another chat template than its seed keeps it: in prompts, exports and copies."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import peft
import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from engine.config import ModelConfig
from engine.errors import MixtureError
from engine.events import Note
from engine.loading.host import Host
from engine.models.families import fresh_model
from engine.text.tokenizer import load_tokenizer
from jobs.queue.submit import run_now
from tests.engine.chat_shapes import CHATML, chat_folder
from tests.journeys.conftest import SHAPE, TRAINING, Do, done
from ui.cli.app import main
from workbench.answers.cards import JobCard
from workbench.registry import experts, seeds
from workbench.registry.database import reading
from workbench.requests.planning import plan
from workbench.store.storage import get_storage

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # of peft
OWN = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
TALK = [{"role": "user", "content": "gull?"}]


@pytest.fixture
def imported(do: Do, tmp_path: Path) -> Do:
    """A seed that chats, the adapter “own” with another template, and “same” whose folder repeats the seed's."""
    seed = tmp_path / "seed"
    chat_folder(seed)
    fresh_model(ModelConfig(**SHAPE), load_tokenizer(seed).vocab_size).save_pretrained(seed)
    done(do({"kind": "make-seed", "name": "seed", "source": "folder", "location": str(seed)}))
    for name in ("own", "same"):
        options = {"r": 4, "init_lora_weights": False, "target_modules": ["q_proj"]}
        lm = AutoModelForCausalLM.from_pretrained(seed)
        peft.get_peft_model(lm, peft.LoraConfig(task_type="CAUSAL_LM", **options)).save_pretrained(tmp_path / name)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(seed / file, tmp_path / name / file)
    (tmp_path / "own/chat_template.jinja").write_text(OWN)
    for name in ("own", "same"):
        done(take(do, tmp_path / name, name))
    return do


def take(do: Do, folder: Path, name: str) -> JobCard:
    return do({"kind": "import-expert", "source": str(folder), "seed_model": "seed", "name": name})


def prompt_of(name: str) -> str:
    """What the workbench has an expert read for a conversation."""
    with reading() as session:
        planned = plan(session, get_storage(), name)
    ids, _ = Host().conversation_prompt(planned, TALK, {})
    return "".join(load_tokenizer(planned.base.folder)._inner.decode(ids, skip_special_tokens=False))


def theirs(folder: Path) -> str:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(TALK, add_generation_prompt=True, tokenize=False)
    assert isinstance(text, str)
    return text


def test_the_import_says_so_and_prompts_are_the_adapters_own(imported: Do) -> None:
    with reading() as session:
        imports = {name: experts.get_expert(session, name).config["imported"] for name in ("own", "same")}
    assert "this expert keeps and uses its own" in imports["own"]["changes"]
    assert "changes" not in imports["same"]
    assert prompt_of("own").startswith("user: gull?")
    assert "im_start" in prompt_of("same")


@pytest.mark.usefixtures("imported")
def test_its_stop_tokens_need_no_names() -> None:
    with reading() as session:
        folder = get_storage().path(experts.expert_row(session, "own").artifact_id)
    (folder / "tokenizer_config.json").write_text("{}")  # as of an adapter and a seed that name no special token
    with reading() as session:
        planned = plan(session, get_storage(), "own")
    host = Host()
    assert host._stop_ids(planned, host._tokenizer(planned))


@pytest.mark.parametrize("format", ["hf", "peft"])
def test_an_export_has_the_template_that_its_prompts_have(imported: Do, tmp_path: Path, format: str) -> None:
    done(imported({"kind": "export-expert", "expert": "own", "folder": str(tmp_path / "out"), "format": format}))
    assert theirs(tmp_path / "out") == theirs(tmp_path / "own")
    if format == "peft":
        done(take(imported, tmp_path / "out", "back"))
        assert prompt_of("back") == prompt_of("own")


def test_an_exported_model_stops_at_the_end_of_a_turn_that_is_not_its_eos(imported: Do, tmp_path: Path) -> None:
    seed, adapter, out = tmp_path / "seed", tmp_path / "same", tmp_path / "out"
    named = json.loads((seed / "tokenizer_config.json").read_text())
    (seed / "tokenizer_config.json").write_text(json.dumps(named | {"eos_token": "<|endoftext|>"}))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (adapter / file).unlink()
    done(imported({"kind": "make-seed", "name": "other", "source": "folder", "location": str(seed)}))
    done(imported({"kind": "import-expert", "source": str(adapter), "seed_model": "other", "name": "guest"}))
    done(imported({"kind": "export-expert", "expert": "guest", "folder": str(out), "format": "hf"}))
    (end,) = load_tokenizer(out).encode("<|im_end|>", control_tokens=True)
    ends = GenerationConfig.from_pretrained(out).eos_token_id
    assert isinstance(ends, list)
    assert end in ends


def test_a_seed_and_a_copy_of_the_expert_have_it_too(imported: Do, tmp_path: Path) -> None:
    done(imported({"kind": "make-seed", "name": "second", "source": "expert", "expert": "own"}))
    with reading() as session:
        folder = get_storage().path(seeds.seed_row(session, "second").artifact_id)
    assert theirs(folder) == theirs(tmp_path / "own")
    records = [{"messages": [*TALK, {"role": "assistant", "content": f"tide {i}"}]} for i in range(60)]
    (tmp_path / "talk.jsonl").write_text("\n".join(map(json.dumps, records)))
    done(imported({"kind": "import-corpus", "name": "talk", "path": str(tmp_path / "talk.jsonl"), "format": "chat"}))
    assert main(["mixture", "create", "alone", "--experts", "own"]) == 0
    training: dict[str, Any] = {**TRAINING, "num_steps": 2, "block_size": 64}
    spec = {"kind": "train-expert", "name": "child", "domain": "talk", "mixture": "alone", "parent": "own"}
    done(imported({**spec, "training": training}))
    assert prompt_of("child") == prompt_of("own")


@pytest.mark.usefixtures("imported")
def test_experts_with_different_templates_share_no_prompt() -> None:
    assert main(["mixture", "create", "both", "--experts", "own,same"]) == 0
    with pytest.raises(MixtureError, match="different chat templates"):
        prompt_of("both")
    assert CHATML != OWN


@pytest.mark.usefixtures("imported")
def test_a_seed_shows_its_context_stop_tokens_and_template(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seed", "show", "seed"]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) < 20
    assert "128 tokens" in shown
    assert "<|im_end|>" in next(line for line in shown.splitlines() if line.startswith("stops at"))
    assert "<|im_start|>user" in next(line for line in shown.splitlines() if line.startswith("chat template"))
    assert main(["seed", "show", "seed", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"]["chat_template"] == CHATML


def test_a_seed_is_made_with_the_template_of_a_file(imported: Do, tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text(OWN)
    add = ["seed", "add", "talker", str(tmp_path / "seed"), "--chat-template"]
    assert main([*add, str(tmp_path / "own.jinja"), "--here"]) == 0
    assert prompt_of("seed:talker").startswith("user: gull?")
    with reading() as session:
        text = seeds.seed_text(session, get_storage(), "talker")
        folder = get_storage().path(seeds.seed_row(session, "talker").artifact_id)
    assert text.chat_template == OWN
    assert theirs(folder).startswith("user: gull?")
    (tmp_path / "own.jinja").write_text("{{ broken")
    assert main([*add[:2], "broken", *add[3:], str(tmp_path / "own.jinja"), "--here"]) != 0


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize(("template", "is_noted"), [("", True), (CHATML, False)])
def test_a_model_without_a_template_says_so_unless_one_is_given(tmp_path: Path, template: str, is_noted: bool) -> None:
    folder = tmp_path / "silent"
    shutil.copytree(tmp_path / "seed", folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    spec = {"kind": "make-seed", "name": "silent", "source": "folder", "location": str(folder)}
    _, events = run_now(spec | ({"chat_template": template} if template else {}))
    notes = [event.sentence for event in events if isinstance(event, Note)]
    assert any("This model has no chat template" in note for note in notes) == is_noted
