"""An expert goes to another workbench in one file: the hashes are equal there, and no altered file gets in."""

from __future__ import annotations

import json
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.loading.loaded_base import load_base
from engine.models.rows import Rows
from jobs.queue.submit import submit
from tests.journeys.conftest import SHAPE, Do, card_of, done, work, write_domain
from tests.journeys.test_export import IDS, LORA, our_logits
from ui.cli.app import main
from workbench.analysis.changes.retrained_baselines import unknown_text, unknown_text_of_base
from workbench.answers.cards import JobCard
from workbench.errors import BadSpecError
from workbench.registry import experts, seeds
from workbench.registry.database import reading
from workbench.settings import Settings
from workbench.store.storage import get_storage

MODE = {"kind": "train-mode", "name": "beside", "seed_model": "seed", "domains": ["court"]}


@pytest.fixture
def there(tmp_path: Path, empty_registry: Path) -> Settings:
    """Another workbench, with nothing in it."""
    (tmp_path / "there").mkdir()
    shutil.copy(empty_registry, tmp_path / "there/registry.db")
    return Settings(home=tmp_path / "there")


@pytest.fixture
def packed(trained: Do, tmp_path: Path) -> Path:
    """A packed LoRA expert with its seed."""
    done(trained(LORA))
    return pack(trained, "thin/court", tmp_path / "court.expert", with_seed=True)


def pack(do: Do, expert: str, file: Path, **options: Any) -> Path:
    done(do({"kind": "pack-expert", "expert": expert, "file": str(file), **options}))
    return file


def unpack(file: Path, there: Settings, **options: Any) -> JobCard:
    return work({"kind": "unpack-expert", "file": str(file), **options}, there)


def base_hash(name: str, there: Settings | None = None) -> str:
    with reading(there) as session:
        return experts.expert_row(session, name).base.sha256


def logits_there(name: str, there: Settings) -> torch.Tensor:
    with reading(there) as session:
        row, storage = experts.expert_row(session, name), get_storage(there)
        kept = storage.kept(row.base), {"one": storage.kept(row.artifact)}
    with torch.no_grad():
        return load_base(*kept).view(["one"])(IDS, Rows.all_to("one", 1))


def nothing_in(there: Settings) -> bool:
    with reading(there) as session:
        rows = [*experts.list_experts(session), *seeds.list_seeds(session)]
    return not rows and not get_storage(there).ids()


@pytest.mark.parametrize("expert", ["thin/court", "small/court", "beside/court"])
def test_hashes_and_logits_are_equal_in_another_workbench(
    trained: Do, tmp_path: Path, there: Settings, expert: str
) -> None:
    specs = {"thin": LORA, "beside": {**MODE, "training": {"num_steps": 2, "block_size": 32}}}
    name = "beside" if expert.startswith("beside") else expert
    if (spec := specs.get(expert.partition("/")[0])) is not None:
        done(trained({**spec, **({"shape": {"num_blocks": 1, "expert_layers": 1}} if name == "beside" else {})}))
    with reading() as session:
        name = next(one.name for one in experts.list_experts(session) if one.name.startswith(name))
    file = pack(trained, name, tmp_path / "one", with_seed=True)
    assert file.read_bytes() == pack(trained, name, tmp_path / "two", with_seed=True).read_bytes()
    assert done(unpack(file, there)).result["new_seed"] == "seed"
    first, second = card_of(name), card_of(name, there)
    assert (second.sha256, second.tokenizer_sha256) == (first.sha256, first.tokenizer_sha256)
    assert base_hash(name, there) == base_hash(name)
    assert (second.method, second.num_parameters, second.parts) == (first.method, first.num_parameters, first.parts)
    assert torch.equal(logits_there(name, there), our_logits(name))
    with reading(there) as session, reading() as here:
        assert seeds.seed_row(session, "seed").artifact.sha256 == seeds.seed_row(here, "seed").artifact.sha256
    assert second.config["imported"]["config"]["num_steps"] == first.config["num_steps"]
    assert unpack(file, there).state == "failed"  # the name is taken
    done(unpack(file, there, name="again"))
    assert (card_of("again", there).base_id, card_of("again", there).seed) == (second.base_id, "seed")


def test_a_missing_seed_is_named_with_how_to_get_it(
    trained: Do, tmp_path: Path, there: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    done(trained(LORA))
    assert main(["expert", "pack", "thin/court", str(tmp_path / "file"), "--here"]) == 0
    card = unpack(tmp_path / "file", there)
    assert card.state == "failed"
    assert "needs the seed model “seed”" in card.error
    assert "--with-seed" in card.next_step
    assert nothing_in(there)
    assert main(["expert", "unpack", str(tmp_path / "file"), "--name", "back", "--here"]) == 0
    assert "expert back" in capsys.readouterr().out
    first, back = card_of("thin/court"), card_of("back")
    assert (back.sha256, back.base_id, back.seed, back.domain) == (first.sha256, first.base_id, "seed", "court")


def test_what_else_trained_a_base_is_unknown_in_another_workbench(
    trained: Do, tmp_path: Path, there: Settings, corpora: dict[str, Path]
) -> None:
    parent = {"kind": "train-expert", "name": "copy", "domain": "kitchen", "mixture": "small", "parent": "small/court"}
    done(trained({**parent, "training": {"num_steps": 2, "block_size": 32}}))
    for name in ("court", "kitchen"):
        done(work({"kind": "import-corpus", "name": name, "path": str(corpora[name])}, there))
    done(unpack(pack(trained, "small/court", tmp_path / "court", with_seed=True), there))
    done(unpack(pack(trained, "copy", tmp_path / "copy"), there))
    with reading(there) as session:
        rows = [experts.expert_row(session, name) for name in ("small/court", "copy")]
        assert [row.domain.name if row.domain else "" for row in rows] == ["court", "kitchen"]
        assert all(unknown_text_of_base(session, row) for row in rows)
        assert [unknown_text(session, row, with_bases=False) != "" for row in rows] == [False, True]


def test_a_file_names_no_folder_of_its_machine(trained: Do, tmp_path: Path, home: Path) -> None:
    source = tmp_path / "model"
    with reading() as session:
        shutil.copytree(get_storage().path(seeds.seed_row(session, "seed").artifact_id), source)
    done(trained({"kind": "make-seed", "name": "taken", "source": "folder", "location": str(source)}))
    done(trained({**LORA, "seed_model": "taken"}))
    content = pack(trained, "thin/court", tmp_path / "file", with_seed=True).read_bytes()
    assert str(tmp_path).encode() not in content


def test_the_size_of_an_expert_is_counted_whatever_the_file_says(packed: Path, there: Settings) -> None:
    done(unpack(rewritten(packed, about(num_parameters=7)), there))
    assert card_of("thin/court", there).num_parameters == card_of("thin/court").num_parameters > 7


def test_another_seed_of_the_same_name_is_named(trained: Do, tmp_path: Path, there: Settings) -> None:
    done(trained(LORA))
    file = pack(trained, "thin/court", tmp_path / "court")
    corpus = {"kind": "import-corpus", "name": "court", "path": str(write_domain(tmp_path, "court"))}
    done(work(corpus, there))
    done(work({"kind": "make-seed", "name": "seed", "domains": ["court"], "vocab_size": 320, "shape": SHAPE}, there))
    card = unpack(file, there)
    assert card.state == "failed"
    assert "which is not here: the one of that name is a different model (SHA-256" in card.error
    done(unpack(pack(trained, "thin/court", tmp_path / "both", with_seed=True), there))
    assert card_of("thin/court", there).seed == "seed-2"


Rewrite = Callable[[dict[str, bytes]], None]


def rewritten(packed: Path, change: Rewrite, **written: Any) -> Path:
    """The file again, with other members."""
    with zipfile.ZipFile(packed) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    path = packed.with_name("changed")
    with zipfile.ZipFile(path, "w", **written) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, **({"compress_type": 8} if written else {}))
    return path


def relisted(**changes: Any) -> Rewrite:
    def change(members: dict[str, bytes]) -> None:
        members["pack.json"] = json.dumps({**json.loads(members["pack.json"]), **changes}).encode()

    return change


def altered(members: dict[str, bytes]) -> None:
    content = members["expert/expert.safetensors"]
    members["expert/expert.safetensors"] = content[:-1] + bytes([content[-1] ^ 1])


def altered_with_its_hash(members: dict[str, bytes]) -> None:
    from hashlib import sha256

    altered(members)
    listed = json.loads(members["pack.json"])
    listed["members"]["expert/expert.safetensors"]["sha256"] = sha256(members["expert/expert.safetensors"]).hexdigest()
    members["pack.json"] = json.dumps(listed).encode()


def about(**changes: Any) -> Rewrite:
    def change(members: dict[str, bytes]) -> None:
        listed = json.loads(members["pack.json"])
        listed["about"] |= changes
        members["pack.json"] = json.dumps(listed).encode()

    return change


def test_an_altered_file_is_refused_and_leaves_nothing(packed: Path, there: Settings) -> None:
    def adds(name: str) -> Rewrite:
        return lambda members: members.update({name: b"evil"})

    cases: list[tuple[Rewrite, str]] = [
        (altered, "is not the file that was packed"),
        (altered_with_its_hash, "is not the one that was packed"),
        (adds("../evil.json"), "which no packed expert has"),
        (adds("/tmp/evil.json"), "which no packed expert has"),
        (adds("expert/../../evil.json"), "which no packed expert has"),
        (adds("expert/evil.pkl"), "which no packed expert has"),
        (adds("expert/evil.py"), "which no packed expert has"),
        (adds("expert/more.json"), "does not hold the files that it lists"),
        (lambda members: members.pop("seed/config.json") and None, "does not hold the files that it lists"),
        (lambda members: members.pop("pack.json") and None, "is not a packed expert"),
        (relisted(version=2), "has version 2 of the packed format; here it is 1"),
        (relisted(members=[]), "cannot be read"),
        (about(base_sha256="0" * 64), "comes without its base"),
        (about(method="moe"), "not of an expert of the method"),
        (about(method="nowhere"), "There is no method “nowhere”"),
        (about(name="a,b"), "no comma"),
        (about(sha256="x"), "“sha256” is missing or wrong"),
    ]
    for change, words in cases:
        card = unpack(rewritten(packed, change), there)
        assert (card.state, words in card.error) == ("failed", True), (words, card.error)
        assert nothing_in(there), words
    assert done(unpack(packed, there)).result["expert"] == "thin/court"


def test_a_cut_a_compressed_and_a_linked_file_are_refused(packed: Path, there: Settings, tmp_path: Path) -> None:
    complete = packed.read_bytes()
    (tmp_path / "cut").write_bytes(complete[:-100])
    (tmp_path / "text").write_text("not a zip")
    bomb = rewritten(packed, lambda members: members.update({"expert/bomb.json": bytes(1 << 22)}), compression=8)
    shutil.copy(bomb, tmp_path / "bomb")
    with zipfile.ZipFile(packed) as archive, zipfile.ZipFile(tmp_path / "link", "w") as linked:
        for info in archive.infolist():
            new = zipfile.ZipInfo(info.filename)
            new.external_attr = (stat.S_IFLNK | 0o777) << 16 if "expert.json" in info.filename else 0
            linked.writestr(new, archive.read(info))
    for name, words in (
        ("cut", "not a complete packed file"),
        ("text", "is text"),
        ("bomb", "compressed inside"),
        ("link", "which no packed expert has"),
    ):
        card = unpack(tmp_path / name, there)
        assert (card.state, words in card.error) == ("failed", True), (name, card.error)
        assert nothing_in(there), name


@pytest.mark.usefixtures("trained")
def test_nothing_is_overwritten_and_places_are_checked_immediately(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    for spec, words in (
        ({"kind": "pack-expert", "expert": "small/court", "file": str(tmp_path / "there")}, "exists already"),
        ({"kind": "pack-expert", "expert": "small/court", "file": str(tmp_path / "no/where")}, "There is no folder"),
        ({"kind": "pack-expert", "expert": "other", "file": str(tmp_path / "new")}, "other"),
        ({"kind": "unpack-expert", "file": str(tmp_path / "nowhere")}, "no file or folder"),
        ({"kind": "unpack-expert", "file": str(tmp_path / "there"), "name": "small/court"}, "small/court"),
    ):
        with pytest.raises(BadSpecError, match=words):
            submit(spec)
    assert (tmp_path / "there").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
