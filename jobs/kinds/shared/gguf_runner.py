"""Runs llama.cpp's converter as a program of its own: CONVERTER SPLITTING MODEL OPTIONS…

The converter names the way in which a tokenizer cuts text by a hash of one text's tokens. Where it does not know the
hash, it takes SPLITTING, if that is not empty. Nothing of the workbench is imported.
Source: https://github.com/ggml-org/llama.cpp/blob/master/conversion/base.py
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Imports the converter from its file and calls its `main`."""
    converter, splitting, *arguments = sys.argv[1:]
    sys.argv = [converter, *arguments]
    sys.path.insert(0, str(Path(converter).parent))
    spec = importlib.util.spec_from_file_location("convert_hf_to_gguf", converter)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    if splitting:
        _name_splitting(module, splitting)
    module.main()


def _name_splitting(module: Any, splitting: str) -> None:
    try:
        converting: Any = importlib.import_module("conversion.base").TextModel
    except ModuleNotFoundError:  # before llama.cpp divided its converter into files
        converting = getattr(module, "TextModel", None) or module.Model
    known = converting.get_vocab_base_pre

    def get_vocab_base_pre(self: Any, tokenizer: Any) -> str:
        try:
            return str(known(self, tokenizer))
        except NotImplementedError:
            return splitting

    converting.get_vocab_base_pre = get_vocab_base_pre


if __name__ == "__main__":
    main()
