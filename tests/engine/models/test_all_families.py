"""Every causal LM family of the installed transformers, by every method: docs/models.md says what works, and this why.

With WRITE_DOCS=1 the document is written anew; otherwise every family is compared with its line there.
"""

from __future__ import annotations

import copy
import os
import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache

from engine.config import LoraConfig
from engine.errors import Problem
from engine.methods.lora.adapters import fresh_adapter
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.model import ModeModel
from engine.methods.multi_expert_files import new_placement
from engine.models.expert_model import require_separation
from engine.models.families import layout_of
from engine.models.flops import Shape
from engine.models.imported_model import import_model
from engine.models.likelihoods import decoder_of, token_scores
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from engine.text.blocks import eval_sample
from tests.engine.models import packed_rows
from tests.engine.models.tiny_families import COMMON, FAMILIES, VOCAB, tiny_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # what transformers warns of in some family
]
DOCUMENT = Path(__file__).parents[3] / "docs/models.md"
IDS = torch.randint(1, VOCAB, (2, 9), generator=torch.Generator().manual_seed(1))
BOTH, CLOSE = Rows(("a", "b"), (1, 1)), {"atol": 1e-4, "rtol": 1e-4}
EQUAL, NOT_BUILT = "equal", "not built"
METHODS = ("dense, C-BTM", "DEMix", "LoRA", "anchored", "MoDE")
APART = "conversations apart"
COLUMNS = (*METHODS, APART)
AT_LEAST = {"dense, C-BTM": 30, "DEMix": 30, "LoRA": 30, "anchored": 30, "MoDE": 20, APART: 90}
WRITES = bool(os.environ.get("WRITE_DOCS"))


@pytest.fixture(autouse=True)
def products_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As transformers computes: those of oneDNN differ in the last bits (`test_matrix_products`)."""
    monkeypatch.setattr("engine.models.matrix_products.is_onednn_faster", lambda: False)


def logits_of(lm: Any, ids: Tensor = IDS) -> Tensor:
    return lm(input_ids=ids, use_cache=False).logits


def with_own_memory(lm: Any) -> Any:
    """The model with tensors of its own: products of tensors in a mapped file differ in the last bit."""
    for tensor in (*lm.parameters(), *lm.buffers()):
        tensor.data = tensor.data.clone()
    return lm


def same(what: str, ours: Tensor, theirs: Tensor) -> None:
    assert torch.equal(ours, theirs), f"{what} differ"


def near(what: str, ours: Tensor, theirs: Tensor) -> None:
    assert torch.allclose(ours, theirs, **CLOSE), f"{what} differ"


def last_from_cache(model: MultiExpertModel, rows: Rows) -> Tensor:
    filled = model.new_cache()
    model(IDS[:, :-1], rows, filled)
    return model(IDS[:, -1:], rows, filled)[:, -1]


def last_from_its_own_cache(lm: Any) -> Tensor:
    first = lm(input_ids=IDS[:, :-1], use_cache=True)
    return lm(input_ids=IDS[:, -1:], past_key_values=first.past_key_values, use_cache=True).logits[:, -1]


def load(lm: Any, expected: Tensor) -> Any:
    """The model from a folder, as a seed is imported."""
    with tempfile.TemporaryDirectory() as folder:
        copy.deepcopy(lm).save_pretrained(folder)
        loaded = with_own_memory(import_model(Path(folder)).lm)
        theirs = with_own_memory(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))
    same("loaded logits", logits_of(loaded), expected)
    same("loaded logits", logits_of(loaded), logits_of(theirs))
    return loaded


def dense(lm: Any, expected: Tensor) -> None:
    Shape.of(lm.config.to_dict())
    hidden = decoder_of(lm)(input_ids=IDS, use_cache=False).last_hidden_state
    likelihoods = expected.log_softmax(-1).gather(-1, IDS[..., None])[..., 0]
    near("likelihoods", token_scores(lm, hidden, IDS).logprobs_BT, likelihoods)
    model = MultiExpertModel(copy.deepcopy(lm), ["dense"], new_placement()).eval()  # what trains and hosts it
    rows = Rows.all_to("dense", 2)
    same("logits", model(IDS, rows), expected)
    near("logits from a cache", last_from_cache(model, rows), last_from_its_own_cache(lm))


def demix(lm: Any, expected: Tensor) -> None:
    model = MultiExpertModel(copy.deepcopy(lm), ["a", "b"], new_placement()).eval()
    for key in model.keys:
        same("logits", model(IDS, Rows.all_to(key, 2)), expected)
    near("logits beside another expert", model(IDS, BOTH), expected)
    likelihoods = expected.log_softmax(-1).gather(-1, IDS[..., None])[..., 0]
    near("likelihoods", model.token_scores(IDS, IDS, BOTH).logprobs_BT, likelihoods)
    near("logits from a cache", last_from_cache(model, BOTH), last_from_its_own_cache(lm))


def lora(lm: Any, expected: Tensor) -> None:
    seed, rows = copy.deepcopy(lm), Rows.all_to("a", 2)
    adapter = fresh_adapter(seed, LoraConfig(rank=2, targets="all"))
    model = MultiExpertModel(seed, [], new_placement("adapter")).eval()
    model.add_expert("a", state=adapter)
    same("logits", model(IDS, rows), expected)
    near("logits from a cache", last_from_cache(model, rows), last_from_its_own_cache(lm))
    for parameter in model.expert_parameters("a").values():
        parameter.add_(0.1)
    assert not torch.allclose(model(IDS, rows), expected, **CLOSE), "logits do not change with the adapter"


def anchored(lm: Any, expected: Tensor) -> None:
    model = MultiExpertModel(copy.deepcopy(lm), ["a", "b"], new_placement("anchored")).eval()
    for _ in model.start_from({"a": [eval_sample(IDS[0].numpy(), 4)]}):
        pass
    first = [float(expert.row.abs().max()) for key in ("a", "b") for _, expert in model.own_modules(key)]
    assert min(first[: len(first) // 2]) > 0, "a layer's first row is 0"
    assert max(first[len(first) // 2 :]) == 0, "the first row of another expert is not 0"
    for key in model.keys:
        same("logits", model(IDS, Rows.all_to(key, 2)), expected)
    near("logits beside another expert", model(IDS, BOTH), expected)
    near("logits from a cache", last_from_cache(model, BOTH), last_from_its_own_cache(lm))
    for parameter in model.expert_parameters("a").values():
        parameter.add_(0.1)
    changed = model(IDS, Rows.all_to("a", 2))
    assert not torch.allclose(changed, expected, **CLOSE), "logits do not change with the expert"
    near("logits beside another expert", model(IDS, BOTH)[:1], changed[:1])


def mode(lm: Any, expected: Tensor) -> None:
    num_layers = len(lm.get_submodule(layout_of(lm).layers))
    for shape in (ModeConfig(1, 1), ModeConfig(1, 1, "random"), ModeConfig(1, num_layers), ModeConfig(num_layers, 1)):
        model = ModeModel(copy.deepcopy(lm), shape.num_blocks).eval()
        model.add_expert("a", shape)
        same("logits", model(IDS, ["a"])[0], expected)
        set_odds(model, 0.01)
        is_twin = shape.num_blocks * shape.expert_layers == num_layers and shape.init == "copy"
        full = model(IDS, ["a"])[0]
        assert torch.allclose(full, expected, **CLOSE) == is_twin, "logits of an open expert differ"
        filled = DynamicCache()
        model(IDS[:, :-1], ["a"], filled)
        near("logits from a cache", model(IDS[:, -1:], ["a"], filled)[0][:, -1], full[:, -1])


def set_odds(model: ModeModel, odds: float) -> None:
    for name, parameter in model.gate_parameters("a").items():
        if name.endswith("odds"):
            parameter.fill_(odds)


ROUNDING = 3e-5  # of logits in float32: processors differ, and 1.2e-5 was seen where 1e-5 had been the bound


def apart(lm: Any, expected: Tensor) -> None:
    """First what a training checks, then every method that can be built."""
    del expected
    require_separation(packed_rows.dense(copy.deepcopy(lm)), 64)
    for method, build in packed_rows.METHODS.items():
        try:
            model = build(copy.deepcopy(lm))
        except Problem:  # the method's own column says why
            continue
        assert packed_rows.largest_difference(model) <= ROUNDING, f"{method}: logits differ from those of a text alone"


CHECKS: dict[str, Callable[[Any, Tensor], None]] = dict(
    zip(COLUMNS, (dense, demix, lora, anchored, mode, apart), strict=True)
)


@cache
@torch.no_grad()
def row_of(family: str) -> tuple[str, ...]:
    """A cell for each method: equal, or why not."""
    try:
        lm = with_own_memory(tiny_model(family))
        expected = logits_of(lm)
    except Exception as error:
        return (f"{NOT_BUILT}: {sentence(error, family)}",)
    try:
        load(lm, expected)
    except Exception as error:
        return (sentence(error, family),) * len(COLUMNS)
    return tuple(outcome(check, lm, expected, family) for check in CHECKS.values())


def outcome(check: Callable[[Any, Tensor], None], lm: Any, expected: Tensor, family: str) -> str:
    try:
        check(lm, expected)
    except Exception as error:
        return sentence(error, family)
    return EQUAL


def sentence(error: Exception, family: str) -> str:
    """What is wrong, in a cell of a table, without what differs from machine to machine."""
    if isinstance(error, AssertionError):
        return str(error).split("\n")[0]
    words = error.cause if isinstance(error, Problem) else f"transformers: {error}"
    words = re.sub(r"(in )?/\S*/tmp\w+/?(?=[ :])|/\S*/tmp\w+/", "", words.split("\n")[0]).replace(
        f" of the family “{family}”", ""
    )
    return re.sub(r"[|<>`]", "", " ".join(words.split()))[:160].strip()


def document() -> str:
    rows = {family: row_of(family) for family in FAMILIES}
    counts = {
        method: sum(row[number : number + 1] == (EQUAL,) for row in rows.values())
        for number, method in enumerate(COLUMNS)
    }
    built = {family: row for family, row in rows.items() if not row[0].startswith(NOT_BUILT)}
    lines = [
        "# Models",
        "",
        f"The families of causal language models that transformers {transformers.__version__} knows, and what each "
        "method makes of them. A test builds a small random model of every family, without knowing it, and writes this "
        "page (`WRITE_DOCS=1 pytest tests/engine/models/test_all_families.py`). Trainings of pretrained models: [real "
        "models](real_models.md).",
        "",
        "- **dense, C-BTM**: a folder loads with the bits that transformers computes, and is trained and scored.",
        "  On AMD processors with AVX-512 larger products are oneDNN's, which differ in the last bits; the tests are "
        "without.",
        "- **DEMix**: every expert of a new model has the bits of the model that it is a copy of, on its own, next to "
        "another and from a cache.",
        "- **LoRA**: a new adapter changes no bit.",
        "- **anchored**: a new expert changes no bit, and takes its first rows from text.",
        "- **MoDE**: a closed expert changes no bit, and a copy of all layers gives what the backbone gives.",
        "- **conversations apart**: with `--separate-conversations` each conversation of a block has the logits that "
        "it has on its own (within 3e-5 in fp32), by every method with ✓.",
        "",
        "A cell without ✓ says why not. Families that wrap other models (vision, audio) are not accepted.",
        "",
        f"Equal, of {len(rows)} families: {', '.join(f'{method} {count}' for method, count in counts.items())}.",
        "",
        f"| family | {' | '.join(COLUMNS)} |",
        f"|---|{'---|' * len(COLUMNS)}",
        *(
            f"| {family} | {' | '.join('✓' if cell == EQUAL else cell for cell in row)} |"
            for family, row in built.items()
        ),
        "",
        "## Not tried",
        "",
        "No small model of these can be made from their default configuration:",
        "",
        "| family | why |",
        "|---|---|",
        *(
            f"| {family} | {row[0].removeprefix(f'{NOT_BUILT}: ')} |"
            for family, row in rows.items()
            if family not in built
        ),
        "",
    ]
    return "\n".join(lines)


def written_row(family: str) -> tuple[str, ...]:
    line = next(line for line in DOCUMENT.read_text("utf-8").splitlines() if line.startswith(f"| {family} |"))
    return tuple(EQUAL if cell.strip() == "✓" else cell.strip() for cell in line.split("|")[2:-1])


@pytest.mark.skipif(not WRITES, reason="WRITE_DOCS is not set")
def test_the_document_is_written() -> None:
    DOCUMENT.write_text(document(), encoding="utf-8")


of_this_version = pytest.mark.skipif(
    not WRITES and f"transformers {transformers.__version__} " not in DOCUMENT.read_text("utf-8"),
    reason="the document is of another version of transformers",
)


@of_this_version
@pytest.mark.parametrize("family", FAMILIES)
def test_each_method_does_what_the_document_says(family: str) -> None:
    written = written_row(family)
    if len(written) == 1:
        pytest.skip(f"no small model: {written[0]}")
    assert row_of(family) == written


@pytest.mark.parametrize("family", COMMON)
def test_the_common_families_do_all_in_every_version(family: str) -> None:
    cells = dict(zip(METHODS, row_of(family), strict=False))
    if family in ("opt", "mixtral"):  # maps in the layer itself; a mixture of experts
        assert cells.pop("anchored").startswith("A model cannot be an anchor")
    assert {*cells.values()} == {EQUAL}


@of_this_version
def test_enough_families_are_supported() -> None:
    rows = [written_row(family) for family in FAMILIES]
    for number, method in enumerate(COLUMNS):
        assert sum(len(row) > 1 and row[number] == EQUAL for row in rows) >= AT_LEAST[method]
