"""Vulnerabilities published for similar programs, by a file or a name from an untrusted user: none applies here.

Each test bears the number of the advisory. Those on requests are in `tests/ui/api/test_advisories_on_requests.py`.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import shutil
import stat
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file

from engine.errors import Problem
from engine.text.chat.template import ChatTemplate
from jobs.queue.submit import submit
from tests.journeys.conftest import Do, done, work
from tests.journeys.test_export import LORA
from ui.cli.app import PROBLEM, main
from ui.widgets.charts_and_tables import as_csv
from workbench.answers.cards import JobCard
from workbench.registry import experts, seeds
from workbench.registry.database import migrate, reading
from workbench.settings import Settings
from workbench.store.storage import get_storage

WEIGHTS = "model.safetensors"


class Evil:
    """Writes the file `ran` when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch ran",)


@pytest.fixture
def theirs(trained: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's folder as one downloads it, where whatever it runs would leave the file `ran`."""
    with reading() as session:
        source = get_storage().path(seeds.seed_row(session, "seed").artifact_id)
    shutil.copytree(source, tmp_path / "theirs")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "theirs"


def take(do: Do, folder: Path) -> JobCard:
    return do({"kind": "make-seed", "name": "taken", "source": "folder", "location": str(folder)})


def refused(card: JobCard) -> str:
    """Why it was refused, and what to do; nothing of the file ran, and nothing was kept."""
    assert card.state == "failed"
    assert card.next_step
    assert not Path("ran").exists()
    with reading() as session:
        assert [seed.name for seed in seeds.list_seeds(session)] == ["seed"]
    return f"{card.error} {card.next_step}"


def configure(folder: Path, name: str = "config.json", **changes: Any) -> None:
    file = folder / name
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def only_pickled(folder: Path, content: Any, **options: Any) -> None:
    (folder / WEIGHTS).unlink()
    torch.save(content, folder / "pytorch_model.bin", **options)


def test_cve_2025_32434(trained: Do, theirs: Path) -> None:
    """PyTorch: `torch.load(weights_only=True)` ran code of a legacy file. No file of torch's own format is read."""
    only_pickled(theirs, {"weight": Evil()}, _use_new_zipfile_serialization=False)
    assert "safetensors" in refused(take(trained, theirs))


def test_cve_2026_24747(trained: Do, theirs: Path) -> None:
    """PyTorch: the unpickler of `weights_only` wrote beyond its memory, from weights that are plain otherwise."""
    plain = {name: torch.from_numpy(array) for name, array in load_file(theirs / WEIGHTS).items()}
    only_pickled(theirs, plain)
    assert "safetensors" in refused(take(trained, theirs))


def test_cve_2023_6730(trained: Do, theirs: Path) -> None:
    """transformers: a RAG configuration named a pickled index. The family is refused, and no other file is opened."""
    configure(theirs, model_type="rag", index_name="legacy", index_path=".")
    (theirs / "content_index.index_meta.dpr").write_bytes(pickle.dumps(Evil()))
    assert "rag" in refused(take(trained, theirs))


def test_cve_2026_22807(trained: Do, theirs: Path) -> None:
    """vLLM: `auto_map` loaded a module of the model although remote code was not trusted."""
    (theirs / "evil.py").write_text("import os\nos.system('touch ran')\nclass Evil: ...\n")
    configure(theirs, auto_map={"AutoModelForCausalLM": "evil.Evil", "AutoConfig": "evil.Evil"})
    assert "code of the model's own (auto_map), which is never run" in refused(take(trained, theirs))


def test_cve_2026_58116(trained: Do, theirs: Path) -> None:
    """LLaMA-Factory: a path typed into the page loaded the tokenizer's own code. Here a tokenizer has none."""
    (theirs / "evil.py").write_text("import os\nos.system('touch ran')\nclass Evil: ...\n")
    configure(theirs, "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Evil", None]})
    (theirs / "tokenizer.json").unlink()
    assert "code of its own" in refused(take(trained, theirs))


def test_cve_2025_12488(trained: Do, theirs: Path) -> None:
    """text-generation-webui: a request could set `trust_remote_code`. No request and no command knows the word."""
    spec = {"kind": "make-seed", "name": "taken", "source": "folder", "location": str(theirs)}
    with pytest.raises(Problem, match="trust_remote_code"):
        submit({**spec, "trust_remote_code": True})
    assert main(["seed", "add", "taken", str(theirs), "--trust-remote-code"]) != 0


def test_cve_2025_46567(trained: Do, theirs: Path, tmp_path: Path) -> None:
    """LLaMA-Factory: beside an adapter `value_head.bin` was unpickled. An adapter of pickles is refused."""
    done(trained(LORA))
    assert main(["expert", "export", "thin/court", str(tmp_path / "adapter"), "--format", "peft", "--here"]) == 0
    adapter = tmp_path / "adapter"
    (adapter / "value_head.bin").write_bytes(pickle.dumps(Evil()))
    (adapter / "adapter_model.safetensors").rename(adapter / "kept")
    (adapter / "adapter_model.bin").write_bytes(pickle.dumps(Evil()))
    spec = {"kind": "import-expert", "source": str(adapter), "seed_model": "seed", "name": "new"}
    assert "a pickle, which is never opened" in refused(trained(spec))
    (adapter / "kept").rename(adapter / "adapter_model.safetensors")
    (adapter / "adapter_model.bin").unlink()
    trained(spec)  # taken or refused, but never unpickled
    assert not Path("ran").exists()


def test_cve_2024_37052(trained: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow: a model of scikit-learn was a pickle. A packed expert has safetensors and JSON, and nothing else."""
    monkeypatch.chdir(tmp_path)
    done(trained(LORA))
    done(trained({"kind": "pack-expert", "expert": "thin/court", "file": str(tmp_path / "one")}))
    with zipfile.ZipFile(tmp_path / "one", "a") as archive:
        archive.writestr("expert/model.pkl", pickle.dumps(Evil()))
    assert "which no packed expert has" in refused(
        trained({"kind": "unpack-expert", "file": str(tmp_path / "one"), "name": "again"})
    )


def test_cve_2024_34359() -> None:
    """llama-cpp-python: a chat template reached Python through its attributes. Templates run in a sandbox."""
    text = "{% for one in ().__class__.__base__.__subclasses__() %}{{ one.__init__.__globals__ }}{% endfor %}"
    with pytest.raises(Problem):
        ChatTemplate(text, {}).render([{"role": "user", "content": "hello"}])


def test_cve_2026_7482(trained: Do, theirs: Path) -> None:
    """Ollama: a tensor that is longer than its file gave the memory behind it away. The header is checked first."""
    content = (theirs / WEIGHTS).read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    name = next(name for name in header if name != "__metadata__")
    header[name] = {"dtype": "F32", "shape": [1 << 20], "data_offsets": [0, 4 << 20]}
    written = json.dumps(header).encode()
    (theirs / WEIGHTS).write_bytes(struct.pack("<Q", len(written)) + written + content[8 + length :])
    assert WEIGHTS in refused(take(trained, theirs))


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "a/../../evil", "file:///etc", "..\\evil"])
def test_cve_2023_1177_and_cve_2025_11201(do: Do, home: Path, corpora: dict[str, Path], name: str) -> None:
    """MLflow: a model's name or source was a path. A name is data here: its files lie under an id."""
    outside = {path for path in home.parent.iterdir() if path != home}
    card = do({"kind": "import-corpus", "name": name, "path": str(corpora["court"])})
    assert card.state == "done"
    assert {path for path in home.parent.iterdir() if path != home} == outside
    assert not [path for path in home.rglob("*") if "evil" in path.name or path.is_symlink()]
    assert all(set(one) <= set("0123456789abcdef") for one in get_storage().ids())


@pytest.mark.parametrize("member", ["../evil.json", "/tmp/evil.json", "expert/../../evil.json", "C:\\evil.json"])
def test_cve_2024_1511(trained: Do, tmp_path: Path, member: str) -> None:
    """lollms: a path in a request led out of its folder. Members of a packed file are known names or refused."""
    done(trained(LORA))
    done(trained({"kind": "pack-expert", "expert": "thin/court", "file": str(tmp_path / "one")}))
    with zipfile.ZipFile(tmp_path / "one", "a") as archive:
        archive.writestr(member, "{}")
    card = trained({"kind": "unpack-expert", "file": str(tmp_path / "one"), "name": "again"})
    assert "which no packed expert has" in card.error
    assert not list(tmp_path.parent.rglob("evil.json"))


def test_cve_2024_52803(trained: Do, corpora: dict[str, Path], tmp_path: Path, monkeypatch: Any) -> None:
    """LLaMA-Factory: the folder of the output was part of a shell's command. No command is made of names."""
    monkeypatch.chdir(tmp_path)
    for name in ("; touch ran", "$(touch ran)", "`touch ran`", "a | touch ran"):
        named = tmp_path / f"{name}.jsonl"
        named.write_bytes(corpora["court"].read_bytes())
        assert work({"kind": "import-corpus", "name": name, "path": str(named)}).state == "done"
    done(trained(LORA))
    assert (
        work({"kind": "pack-expert", "expert": "thin/court", "file": str(tmp_path / "; touch ran; ")}).state == "done"
    )
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("cell", ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(1)", "\t=1", "\r=1"])
def test_cve_2022_24770(cell: str) -> None:
    """Gradio: a flagged text was a formula in the CSV file. Such a cell is written as text."""
    [row] = csv.DictReader(io.StringIO(as_csv([{"name": cell}]), newline=""))
    assert row["name"] == f"'{cell}"


def test_cve_2026_4137(tmp_path: Path) -> None:
    """MLflow: folders were open to every user of the machine. A home belongs to its owner alone."""
    settings, mask = Settings(home=tmp_path / "new"), os.umask(0)
    try:
        migrate(settings)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(settings.root.stat().st_mode) == 0o700


def test_cve_2026_35050(trained: Do, tmp_path: Path) -> None:
    """text-generation-webui: settings were saved under a name that a request gave, also over a program's own file.

    A packed file or an export replaces nothing that it did not write itself.
    """
    done(trained(LORA))
    (tmp_path / "mine.py").write_text("print()")
    with pytest.raises(Problem, match="nothing is written over"):
        trained({"kind": "pack-expert", "expert": "thin/court", "file": str(tmp_path / "mine.py")})
    assert main(["expert", "export", "thin/court", str(tmp_path), "--here"]) == PROBLEM
    assert (tmp_path / "mine.py").read_text() == "print()"
    with reading() as session:
        assert "thin/court" in {expert.name for expert in experts.list_experts(session)}
