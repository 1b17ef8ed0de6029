"""A model of a GGUF file as a folder of safetensors, with its tokenizer and its chat template.

transformers dequantizes it. It never sees the file's own folder, which could lead it elsewhere, and reads the file only
after its header was checked. The weights are float32, which holds every dequantized number exactly, unless bfloat16 is
asked for; those of a file without quantization are stored in its own 16 bits where all of them fit.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, fields
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import pre_tokenizers
from torch import Tensor

from engine.device import megabytes, most_main_memory
from engine.errors import ModelError
from engine.files import read_own, sha256_of
from engine.foreign_files import short
from engine.models import model_files
from engine.models.families import empty_model, one_at_a_time, silent
from engine.models.gguf_header import SAFETENSORS, GgufHeader, require_gguf

_NAME = "model.gguf"
_FLOAT32 = 4
_WORKING_COPIES = 3  # of the largest tensor, while gguf dequantizes it
_LIBRARIES = 600_000_000  # bytes of memory that torch and transformers take
_HALVES = {"BF16": torch.bfloat16, "F16": torch.float16}
_PIECE = 1 << 24
_ENDS = ("eos", "eot", "eom")  # tokens that end a text, a turn, and a message to a tool
_KNOWN_SPLITS = ("gpt-2", "gpt2", "mpt", "olmo", "jais", "phi-2", "roberta-bpe")  # as GPT-2
_SINGLE_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone")  # the same, each digit apart
_BLANKS = "▁\t\n"  # as a vocabulary of SentencePiece writes them


ORIGIN = "origin.json"  # of a seed's folder: its `GgufOrigin`


@dataclass(frozen=True)
class GgufOrigin:
    """The file that a converted model comes from, for its card."""

    file: str
    quantization: str
    types: Mapping[str, int]  # numbers of the model by the type that they were stored in
    precision: str
    sha256: str
    tensors_sha256: str
    name: str
    license: str

    @classmethod
    def read(cls, folder: Path) -> GgufOrigin | None:
        """That of a seed's folder; None where the model comes from elsewhere."""
        if not (folder / ORIGIN).exists():
            return None
        names = [field.name for field in fields(cls)]
        stored = read_own(folder / ORIGIN, names, "Restore it from a backup, or import the model again.")
        return cls(**{name: stored[name] for name in names})


@dataclass(frozen=True)
class ConversionNeeds:
    """Bytes that a conversion takes; `disk` for a joined file and both copies of the weights."""

    weights: int
    memory: int
    disk: int

    @property
    def sentence(self) -> str:
        return (
            f"Dequantized to float32 it takes {megabytes(self.weights)}; its import takes about "
            f"{megabytes(self.memory)} of memory and {megabytes(self.disk)} of disk."
        )


def require_space(header: GgufHeader, folder: Path, *, in_bf16: bool = False) -> ConversionNeeds:
    """What conversion into a folder and import take; raises ModelError where the memory or the disk has less."""
    weights = _FLOAT32 * header.num_parameters
    largest = _FLOAT32 * max(tensor.size for tensor in header.tensors)
    joined = header.path.stat().st_size if header.path.parent == folder else 0  # its parts', on the disk already
    needs = ConversionNeeds(
        weights=weights,
        memory=_LIBRARIES + max(2 * weights, weights + _WORKING_COPIES * largest),
        disk=(weights if in_bf16 else 2 * weights) + joined,
    )
    memory, disk = most_main_memory(), shutil.disk_usage(folder).free + joined
    for needed, free, what in ((needs.memory, memory, "memory"), (needs.disk, disk, "disk")):
        if free is not None and needed > free:
            raise ModelError(
                f"{header.path}: {needs.sentence} This process can have {megabytes(free)} of {what}.",
                "Free some, take a machine with more, or give a smaller model.",
            )
    return needs


def convert_gguf(header: GgufHeader, folder: Path, *, in_bf16: bool = False) -> tuple[GgufOrigin, tuple[str, ...]]:
    """Writes the model of a file into a folder; gives its origin, and what of the file was left out or assumed.

    `in_bf16` rounds every number to bfloat16: half the disk of float32, but not the file's model to the bit. Raises
    ModelError for an architecture, a quantization or a tokenizer that transformers does not read.
    """
    _require_types(header)
    with _reading(header), tempfile.TemporaryDirectory(dir=folder) as own:
        (Path(own) / _NAME).symlink_to(header.path.resolve())
        changes = [*_write_tokenizer(header, Path(own), folder), *_unread_tensors(header)]
        dtype = _write_model(header, Path(own), folder, in_bf16=in_bf16)
    precision = str(dtype).removeprefix("torch.")
    origin = GgufOrigin(
        file=header.path.name,
        quantization=header.quantization,
        types=dict(header.types),
        precision=precision,
        sha256=sha256_of(header.path),
        tensors_sha256=header.tensors_sha256(),
        name=short(header.fields.get("general.name", "")),
        license=short(header.fields.get("general.license", "")),
    )
    stored = ", ".join(f"{size:,} numbers in {kind}" for kind, size in header.types.items())
    rounded = ", rounded as asked" if in_bf16 else ""
    return origin, (f"Converted from GGUF ({header.quantization}: {stored}) to {precision}{rounded}.", *changes)


def _require_types(header: GgufHeader) -> None:
    """Raises ModelError that names the types that cannot be dequantized."""
    require_gguf()
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    unknown = []
    for name in header.types:
        kind = GGMLQuantizationType[name]
        try:
            with np.errstate(all="ignore"):
                dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
        except NotImplementedError:
            unknown.append(name)
    if unknown:
        problem = f"{header.path} holds tensors in {', '.join(unknown)}, which the library gguf does not dequantize."
        raise ModelError(problem, SAFETENSORS)


@contextmanager
def _reading(header: GgufHeader) -> Iterator[None]:
    """Raises ModelError for whatever transformers raises, which fails in many ways on files that it does not expect."""
    try:
        with one_at_a_time(), silent(), redirect_stderr(StringIO()):  # where tqdm draws a bar
            yield
    except (ModelError, MemoryError, OSError):
        raise
    except Exception as error:
        of = f"of the architecture “{short(header.architecture)}”"
        if "not supported yet" in str(error):
            problem = f"{header.path} is {of}, which the installed transformers does not read as GGUF."
            raise ModelError(problem, SAFETENSORS) from None
        cause = f"it lacks {error}" if isinstance(error, KeyError) else short(error)
        problem = f"transformers cannot read {header.path} ({of}, {header.quantization}): {cause.rstrip('.')}."
        raise ModelError(problem, SAFETENSORS) from error


def _write_tokenizer(header: GgufHeader, own: Path, folder: Path) -> Iterator[str]:
    """Writes the tokenizer and the chat template; yields what is not as in the file, as sentences."""
    from transformers import AutoTokenizer

    _require_ids_of_tokens(header)
    tokenizer: Any = AutoTokenizer.from_pretrained(own, gguf_file=_NAME, local_files_only=True)
    fields = {name.removeprefix("tokenizer."): value for name, value in header.fields.items()}
    split = fields.get("ggml.pre", "")
    if fields.get("ggml.model") == "gpt2":
        parts = tokenizer.backend_tokenizer.pre_tokenizer
        is_gpt2 = isinstance(parts, pre_tokenizers.ByteLevel) and parts.use_regex
        if is_gpt2 and split in _SINGLE_DIGITS:  # which transformers leaves out
            digits = pre_tokenizers.Digits(individual_digits=True)
            tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, parts])
        elif is_gpt2 and split not in _KNOWN_SPLITS:
            yield (
                f"The file splits text as “{short(split) or 'not named'}” does (tokenizer.ggml.pre), which is not "
                "known here: text is split as for GPT-2, and some ids may differ from those of training."
            )
    tokenizer.save_pretrained(folder)
    if fields.get("ggml.model") == "llama" and header.architecture.startswith("gemma"):
        merge_longest_runs_first(folder / "tokenizer.json")
    if others := sorted(name for name in fields if name.startswith("chat_template.")):
        yield f"Left out: the further chat templates {', '.join(short(name.split('.', 1)[1]) for name in others)}."


def _require_ids_of_tokens(header: GgufHeader) -> None:
    """Raises ModelError for a special token that the vocabulary lacks, where transformers ends with an index error."""
    num_tokens = header.fields.get("tokenizer.ggml.tokens")  # the length of an array
    if type(num_tokens) is not int:
        return
    for name, id in header.fields.items():
        if name.endswith("_token_id") and type(id) is int and id >= num_tokens:
            raise ModelError(f"{header.path} has {num_tokens:,} tokens, but {short(name)} is {id:,}.", SAFETENSORS)


def merge_longest_runs_first(file: Path) -> None:
    """Puts the merges of spaces, tabs and line ends before all others in a `tokenizer.json`, the longest runs first.

    For SentencePiece each run of up to 31 of them is one symbol of Gemma, the longest found first. transformers ranks
    merges by the ids, the shortest first: 40 spaces become 16, 16 and 8 of them in place of 31 and 9.
    """

    def rank(merge: Sequence[str]) -> tuple[int, int]:
        left, right = merge
        is_run = left[0] in _BLANKS and left + right == left[0] * (len(left) + len(right))
        return (-len(left), -len(right)) if is_run else (0, 0)

    state = json.loads(file.read_text(encoding="utf-8"))
    state["model"]["merges"] = sorted(state["model"]["merges"], key=rank)
    file.write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")


def _unread_tensors(header: GgufHeader) -> Iterator[str]:
    """A sentence on the tensors that change positions and that transformers does not read, as of Llama 3.1."""
    if names := [tensor.name for tensor in header.tensors if tensor.name.startswith("rope_")]:
        yield (
            f"Left out, since transformers does not read them from GGUF: {', '.join(map(short, names))}. The model "
            "reads positions in another scale than in its training; its safetensors read them as trained."
        )


def _write_model(header: GgufHeader, own: Path, folder: Path, *, in_bf16: bool) -> torch.dtype:
    """Writes config.json and model.safetensors; the precision of the weights."""
    import transformers

    fields = header.fields
    source: dict[str, Any] = {"pretrained_model_name_or_path": own, "gguf_file": _NAME, "local_files_only": True}
    theirs = transformers.AutoConfig.from_pretrained(**source)
    values = {name: value for name, value in theirs.to_dict().items() if name != "quantization_config"}
    ends = [id for end in _ENDS if type(id := fields.get(f"tokenizer.ggml.{end}_token_id")) is int]
    if len(ends) > 1:
        values["eos_token_id"] = list(dict.fromkeys(ends))
    (folder / model_files.CONFIG).write_text(json.dumps(values | {"dtype": "float32"}), encoding="utf-8")
    config = model_files.read_config(folder)
    settings = getattr(transformers, "GgufConfig", None)  # without it, older versions always dequantize
    if settings is not None:
        source["quantization_config"] = settings(dequantize=True)
    source |= {"config": theirs, "dtype": torch.float32, "output_loading_info": True}
    loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(**source)
    lm, report = loaded
    for keys, what in (("missing_keys", "is missing"), ("mismatched_keys", "is of another shape")):
        if report.get(keys):  # it would stay random
            name = min(key if isinstance(key, str) else key[0] for key in report[keys])
            raise ModelError(f"{header.path} does not fit its configuration: “{short(name)}” {what}.", SAFETENSORS)
    state = dict(lm.state_dict())
    del lm, loaded
    dtype = torch.bfloat16 if in_bf16 else _exact_half(header, state)
    for name in list(state):
        if state[name].is_floating_point():
            state[name] = state[name].to(dtype)
    plain: Any = empty_model(config)  # takes the tensors as they are, without the settings of GGUF
    plain.load_state_dict(state, strict=False, assign=True)
    plain.tie_weights()
    plain.config.dtype = dtype
    plain.save_pretrained(folder)
    return dtype


def _exact_half(header: GgufHeader, state: Mapping[str, Tensor]) -> torch.dtype:
    """The file's own 16 bits, if nothing is quantized and they hold every number exactly; else float32."""
    half = _HALVES.get(next(iter(header.types)))
    if half is None or set(header.types) - {"F32", *_HALVES}:
        return torch.float32
    pieces = (piece for tensor in state.values() for piece in tensor.flatten().split(_PIECE))
    return half if all(torch.equal(piece.to(half).float(), piece) for piece in pieces) else torch.float32
