"""What turns text into token numbers: bytes, or a transformers tokenizer from a local folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from trainer_runtime.data.format import Tokens


class Tokenizer(Protocol):
    """`vocabulary`: token numbers are below it. `end`: the token after each document, if any."""

    name: str
    vocabulary: int
    end: int | None

    def encode(self, texts: Sequence[bytes]) -> list[Tokens]:
        """Token numbers [n] of each UTF-8 text. Raises ValueError."""
        ...


class Bytes:
    """256 tokens, text as it is; a document ends with a newline."""

    name, vocabulary = "bytes", 256
    end: int | None = 10

    def encode(self, texts: Sequence[bytes]) -> list[Tokens]:
        return [np.frombuffer(text, dtype=np.uint8) for text in texts]


class FromFolder:
    """A tokenizer that transformers loads from `folder`; nothing is downloaded. No special tokens
    are added but the end of text after each document."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ValueError(f"tokenizer: {folder} is neither 'bytes' nor a folder")
        os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise ValueError(
                "tokenizer: a folder needs transformers: pip install "
                "'concertina-trainer[transformers]'"
            ) from error
        try:
            self._inner: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        except (OSError, ValueError) as error:
            raise ValueError(f"tokenizer: {folder}: can't be loaded: {error}") from error
        self.name, self.vocabulary = folder.name, len(self._inner)
        self.end: int | None = self._inner.eos_token_id

    def encode(self, texts: Sequence[bytes]) -> list[Tokens]:
        decoded = [text.decode() for text in texts]
        found = self._inner(decoded, add_special_tokens=False, verbose=False)["input_ids"]
        return [np.array(each, dtype=np.int64) for each in found]


def load(name: str) -> Tokenizer:
    """`bytes`, or the folder of a tokenizer. Raises ValueError."""
    return Bytes() if name == "bytes" else FromFolder(Path(name))
