"""A data set of the Hugging Face hub: NAME, NAME:CONFIG, and either with @REVISION; its rows are streamed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.errors import CorpusError
from engine.text.streams import printable


@dataclass(frozen=True)
class DatasetSource:
    """A split of a data set. `revision` is a branch, a tag or a commit; empty: the newest commit."""

    dataset: str
    config: str = ""
    revision: str = ""
    split: str = "train"

    @classmethod
    def parse(cls, name: str, split: str = "train") -> DatasetSource:
        """The source of a name as users write it: NAME[:CONFIG][@REVISION]."""
        before, _, revision = name.partition("@")
        dataset, _, config = before.partition(":")
        return cls(dataset, config, revision, split)

    @property
    def name(self) -> str:
        """The name with configuration and revision."""
        config, revision = self.config and f":{self.config}", self.revision and f"@{self.revision}"
        return f"{self.dataset}{config}{revision}"

    def pinned(self) -> DatasetSource:
        """The same with the commit that the revision is now; a folder of this machine has none.

        Raises CorpusError if the hub does not know it or cannot be reached.
        """
        if Path(self.dataset).exists():
            return self
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError

        errors: tuple[type[Exception], ...]
        errors = (OSError, ValueError, RuntimeError, *HfHubHTTPError.__bases__)  # the last: of its HTTP library
        try:
            commit = HfApi().dataset_info(self.dataset, revision=self.revision or None).sha
        except errors as error:
            raise self._refusal(error) from None
        return replace(self, revision=commit or self.revision)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of the split; raises CorpusError with the cause."""
        try:
            from datasets import exceptions, load_dataset, packaged_modules
        except ImportError:
            problem = "The library “datasets” is not installed; it is needed to read data sets."
            raise CorpusError(problem, "Run: pip install 'expert-workbench[hub]'.") from None
        if self.dataset in packaged_modules._PACKAGED_DATASETS_MODULES:  # without files it reads the current folder
            problem = f"“{self.dataset}” is a file format, not a data set."
            raise CorpusError(problem, "Give the path of the files.")
        try:
            config, revision = self.config or None, self.revision or None
            yield from load_dataset(self.dataset, config, split=self.split, revision=revision, streaming=True)
        except (OSError, ValueError, RuntimeError, exceptions.DatasetsError) as error:
            raise self._refusal(error) from None

    def _refusal(self, error: Exception) -> CorpusError:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return CorpusError(
            f"The split “{printable(self.split)}” of the data set “{printable(self.name)}” cannot be read ({reason}).",
            "Check its name, its configuration, its revision, the split and the network.",
        )
