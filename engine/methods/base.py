"""The descriptor of a method: how its experts are built, stored, loaded and counted, and what can be done with them.

Each method has a folder with a module `descriptor` that holds its `METHOD`: one descriptor, or several that
differ in a choice or two. Importing a descriptor loads no torch: what needs it is imported when it is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import EngineError, ModelError
from engine.files import ArtifactRef
from engine.models import flops
from engine.models.flops import Shape

if TYPE_CHECKING:
    import torch

    from engine.models.expert_model import ExpertHost, TrainableModel


@dataclass(frozen=True)
class StoredExpert:
    """The facts about a trained expert that counting operations needs; no tensor is read."""

    num_parameters: int
    config: Mapping[str, Any] = field(default_factory=dict)  # of its row


@dataclass(frozen=True)
class Parameters:
    """Parameter counts of an expert; a tensor that is used in two places counts once.

    Wherever parameters are shown they are these three. Of a training, those that it changes are called trainable.
    """

    total: int  # of the expert and its base: all that computing with it needs
    own: int  # of the expert, without its base
    active: int  # that one token goes through


@dataclass(frozen=True)
class SeedOrigin:
    """The hub name and commit that a seed model was downloaded from; empty for other seeds."""

    hub_name: str = ""
    commit: str = ""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method of training experts. The fields tell jobs, pages and files what they can do with its experts."""

    name: str  # in specs, in the registry and in files
    title: str  # in sentences
    order: int = 0  # in lists: later than those with less, else by the name of its module
    sentence: str  # what each domain's expert consists of, for the help
    paper: str
    expert_words: str = "feed-forward networks"  # what an expert consists of
    shared_words: str = "attention, embeddings and everything else that the experts share"
    only_expert: str = ""  # name of the one expert that all domains train; empty: each domain has its own
    balanced: bool = True  # as many sequences of each domain in every batch
    is_trainable: bool = True  # False: made of trained experts
    is_joint: bool = True  # experts of several domains are trained together, by the job that does so
    is_seed: bool = False  # an expert is its seed model as it is
    in_place_of_base: bool = (
        False  # an expert stands in the place of as many parameters of its seed, not in addition to them
    )
    base_is_frozen: bool = False  # the seed does not change, and is the base of the experts
    can_be_copied: bool = True  # a copy of an expert can be trained on another domain
    method_of_copy: str = ""  # the method of that copy; empty: the same
    no_decoder_because: str = ""  # why an expert with its base is not a plain decoder; empty: it is one
    is_adapter: bool = False  # an expert can be exported as a PEFT adapter
    imports: str = ""  # what of another tool's folder becomes an expert: an adapter, the networks or the model
    has_rows: bool = False  # an expert was trained beside its base's networks, with a router's row to be chosen by
    joined: str = "ridge"  # the method of several experts as one sparse model
    has_parts: bool = False  # an expert has parts next to its base, which can be composed and switched
    config: type[Any] | None = None  # dataclass of the settings that only this method has
    config_field: str = "options"  # the field of a spec that holds them

    @property
    def copy_name(self) -> str:
        """The name of the method of an expert that is trained from a copy."""
        return self.method_of_copy or self.name

    @property
    def learns_trained_weights(self) -> bool:
        """Whether weights learn that the seed was trained with, or copies of them: they take a lower rate."""
        return not self.base_is_frozen

    @property
    def artifact_kind(self) -> str:
        """The kind of the artifact of an expert."""
        return "demix-expert"

    @property
    def is_full_model(self) -> bool:
        """Whether an expert with its base is a plain decoder: it can be averaged and become a seed."""
        return not self.no_decoder_because

    @property
    def host_key(self) -> str:
        """Experts of one base whose methods have the same key lie in one host."""
        return self.name

    def config_from(self, values: Mapping[str, Any]) -> Any:
        """The method's own settings from their values; raises EngineError with the cause."""
        if self.config is None:
            if values:
                raise EngineError(f"The method {self.name} has no options.", f"Remove: {', '.join(values)}.")
            return None
        try:
            return self.config(**values)
        except TypeError as error:
            known = ", ".join(asdict(self.config()))
            raise EngineError(f"Wrong options of the method {self.name}: {error}.", f"It takes: {known}.") from None

    def starts_as_seed(self, config: Any) -> bool:
        """Whether a new expert with these settings computes what its seed model does until its first update."""
        del config
        return False

    def opens(self, card: Mapping[str, Any], base: Path) -> bool:
        """Whether an expert with this card, on the base in this folder, is one of this method."""
        del base
        return card.get("method") == self.name

    def build(self, seed_folder: Path, keys: Sequence[str], config: Any = None, seed: int = 0) -> TrainableModel:
        """A model of the seed with these experts, all alike; `seed` is that of what the seed model does not hold.

        `config` is one of `config`, None for its defaults. Raises ModelError when the seed cannot be used.
        """
        raise self._refusal("trained")

    def load(self, base: ArtifactRef, experts: Mapping[str, ArtifactRef]) -> TrainableModel:
        """A model with these experts by key, to train a copy of them; every byte is checked."""
        raise self._refusal("copied")

    def load_full_model(self, base: ArtifactRef, expert: ArtifactRef) -> Any:
        """Loads an expert with its base as a plain decoder."""
        raise self._refusal("made a model of its own")

    def load_networks(self, base: ArtifactRef, expert: ArtifactRef) -> Any:
        """Loads the base as a plain decoder with the networks of an expert in the place of its own."""
        return self.load_full_model(base, expert)

    def rows(self, expert: ArtifactRef) -> torch.Tensor:
        """The row of each layer's router [L, H] that an expert was trained with, if its method has such rows."""
        raise self._refusal("joined by the rows of their routers")

    def export_adapter(
        self, base: ArtifactRef, expert: ArtifactRef, folder: Path, *, base_model: str, revision: str = ""
    ) -> None:
        """Writes an expert as a PEFT adapter for `base_model`, a folder or hub name; every byte is checked."""
        raise self._refusal("exported as a PEFT adapter")

    def take_in(
        self, seed: ArtifactRef, origin: SeedOrigin, lm: Any, folder: Path, key: str, changes: list[str]
    ) -> TrainableModel:
        """A model with the expert of another tool's folder; `lm` is the model in the folder, None for an adapter.

        Appends a sentence to `changes` for whatever of the files is left out or read in another way.
        Raises ModelError for what such an expert does not hold exactly.
        """
        raise self._refusal("imported")

    def save_base(self, model: Any, folder: Path) -> None:
        """Writes the shared parameters of a model. Methods with a frozen base need none: their base is the seed."""
        raise self._refusal("saved with a base")

    def save_expert(self, model: Any, key: str, folder: Path, *, base_sha256: str, tokenizer_sha256: str) -> None:
        """Writes an expert with its card, which names its base and tokenizer."""
        raise self._refusal("saved")

    def open(self, base: ArtifactRef, device: torch.device | str) -> ExpertHost:
        """An empty host for experts of this base."""
        raise self._refusal("loaded")

    def parameters(self, of_seed: int, seed_config: Mapping[str, Any], expert: StoredExpert) -> Parameters:
        """The parameters of an expert; its seed model has `of_seed` of them and this config.json."""
        del seed_config
        total = of_seed if self.in_place_of_base else of_seed + expert.num_parameters
        return Parameters(total, expert.num_parameters, total)

    def trained_parameters(self, of_seed: int, shape: Shape, num_domains: int) -> int | None:
        """How many parameters a training on so many domains changes, with the method's usual settings.

        None where this was not worked out, and for a method that differs from another only in how text is drawn.
        """
        del of_seed, shape, num_domains
        return None

    def forward_flops(self, shape: Shape, context: int, expert: StoredExpert) -> int:
        """Operations per token of an expert's forward pass with a context of `context` tokens."""
        del expert
        return flops.forward_flops(shape, context)

    def adapting_flops(self, shape: Shape, context: int, expert: StoredExpert) -> int:
        """Operations per training token of a new expert, with everything else frozen."""
        del expert
        return flops.training_flops(shape, context)

    def composing_flops(self, shape: Shape, context: int, expert: StoredExpert) -> dict[str, int] | None:
        """Operations per token of training all parts of an expert together, by what learns; None without parts."""
        del shape, context, expert
        return None

    def _refusal(self, what: str) -> ModelError:
        return ModelError(f"Experts of the method {self.name} cannot be {what}.", "Choose another method.")
