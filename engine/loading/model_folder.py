"""What the folder of a base tells without its weights."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from engine.inference.cache_bytes import bytes_per_position
from engine.methods.multi_expert_files import read_limits
from engine.models.families import read_config
from engine.text.chat.own_template import stop_ids, template_folder
from engine.text.chat.template import ChatTemplate, load_chat_template
from engine.text.tokenizer import Tokenizer, load_tokenizer


class ModelFolder:
    """The limits and the tokenizer of a base, and the chat templates of its experts. Each file is read once."""

    def __init__(self, folder: Path) -> None:
        """Raises DamagedFileError where the limits cannot be read."""
        self._folder = folder
        self.limits = read_limits(folder)
        self.bytes_per_position = bytes_per_position(read_config(folder))  # of one expert's keys and values
        self._templates: dict[Path, ChatTemplate | None] = {}
        self._stop_ids: dict[Path, frozenset[int]] = {}

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; of a mixture over several bases only the first one's is read, since all are alike."""
        return load_tokenizer(self._folder)

    def template(self, expert: Path) -> ChatTemplate | None:
        """The chat template of an expert: its own, or else the base's; None without one."""
        folder = template_folder(self._folder, expert)
        if folder not in self._templates:
            self._templates[folder] = load_chat_template(folder, "this model")
        return self._templates[folder]

    def stop_ids(self, expert: Path, tokenizer: Tokenizer) -> frozenset[int]:
        """The tokens that end an answer of an expert, with those that end a turn by its chat template."""
        folder = template_folder(self._folder, expert)
        if folder not in self._stop_ids:
            self._stop_ids[folder] = stop_ids(tokenizer, self._folder, folder)
        return self._stop_ids[folder]
