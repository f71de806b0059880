"""Tokenizers: texts to integers and back, by characters or byte-pair encoding.

A tokenizer has ``encode`` (string to array), ``decode`` (integers to string), ``size``, ``end`` (the
token that stands between documents, which opens and closes each) and ``dump``, a string from which
:func:`restore` makes it again. Characters are the simple default; byte pairs come from the package
``tokenizers``, trained on the user's texts or read from a file.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from corollary import errors
from corollary.shapes import Count, Dtype, Maybe, Plain, Text

__all__ = ["BytePairTokenizer", "CharacterTokenizer", "Tokenizer", "make", "restore"]

END = "<|endoftext|>"
UNKNOWN = "\ufffd"


class Tokenizer(Protocol):
    """Anything that turns texts into integers and back."""

    end: int

    @property
    def size(self) -> int:
        """The number of tokens."""

    def encode(self, text: str) -> np.ndarray:
        """Return the tokens of a text."""

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens; the end token has none."""

    def dump(self) -> str:
        """Return all of it as JSON."""


class CharacterTokenizer:
    """One token per character, numbered from 1; 0 is the end token, the last one stands for characters never seen.

    Parameters
    ----------
    characters : str
        All characters there are.

    Examples
    --------
    >>> tokenizer = CharacterTokenizer.train(["banana"])
    >>> tokenizer.encode("nab")
    array([3, 1, 2])
    >>> tokenizer.decode([2, 1, 3])
    'ban'
    >>> tokenizer.size, tokenizer.unknown
    (5, 4)
    """

    end = 0

    def __init__(self, characters: str) -> None:
        self.codes = np.unique(_codes(characters))

    @classmethod
    def train(cls, texts: Iterable[str]) -> CharacterTokenizer:
        """Take every character that the texts have."""
        return cls("".join(sorted(set().union(*map(set, texts)))))

    @property
    def size(self) -> int:
        """The number of characters, with the end token and the unknown one."""
        return len(self.codes) + 2

    @property
    def unknown(self) -> int:
        """The token of every character that training never saw."""
        return len(self.codes) + 1

    def encode(self, text: str) -> np.ndarray:
        """Return one integer per character; characters never seen become one token, with a warning."""
        codes = _codes(text)
        known = np.isin(codes, self.codes)
        if not known.all():
            strange = sorted(set(map(chr, codes[~known])))
            listed = ", ".join(map(repr, strange[:8])) + (", …" if len(strange) > 8 else "")
            warnings.warn(
                f"CharacterTokenizer: texts should be made of the {len(self.codes)} characters it was trained on; got "
                f"{listed}, first at position {int(np.argmin(known))}. They count as one unknown character. "
                'tokenizer="bytepair" knows every character.',
                errors.CorollaryWarning,
                stacklevel=2,
            )
        return np.where(known, np.searchsorted(self.codes, codes) + 1, self.unknown)

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the characters; the unknown one is U+FFFD, the replacement character."""
        known = [UNKNOWN, *map(chr, self.codes), UNKNOWN]
        return "".join(known[token] for token in tokens if token != self.end)

    def dump(self) -> str:
        """Return the characters as JSON."""
        return json.dumps({"kind": "character", "characters": "".join(map(chr, self.codes))})


def _codes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.int64)


class BytePairTokenizer:
    """Frequent strings of bytes as tokens; every text has an encoding.

    Parameters
    ----------
    inner : tokenizers.Tokenizer
        What does the work.
    end : str, optional
        The token that stands between documents; by default GPT-2's, else the last of its special ones.
    """

    def __init__(self, inner: Any, end: str | None = None) -> None:
        inner.no_padding()  # files often bring both, for batches of their own
        inner.no_truncation()
        self.inner = inner
        special = [t.content for t in inner.get_added_tokens_decoder().values() if t.special]
        names = [
            name for name in (end, END, *reversed(special)) if name and inner.token_to_id(name) is not None
        ]
        if not names:
            must = f"the tokenizer must have a special token such as {END}"
            raise errors.value("BytePairTokenizer", must, "none")
        self.end = int(inner.token_to_id(names[0]))

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 1000) -> BytePairTokenizer:
        """Merge the most frequent neighbours until there are ``size`` tokens, 256 bytes and the end token included."""
        tokenizers = _package()
        if size < 257:
            raise errors.value(
                "BytePairTokenizer", "a vocabulary must have room for 256 bytes and an end token", size
            )
        inner = tokenizers.Tokenizer(tokenizers.models.BPE())
        inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = tokenizers.decoders.ByteLevel()
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=size, special_tokens=[END], initial_alphabet=sorted(alphabet), show_progress=False
        )
        inner.train_from_iterator(texts, trainer)
        return cls(inner)

    @classmethod
    def read(cls, path: str | Path) -> BytePairTokenizer:
        """Read ``tokenizer.json``, or ``vocab.json`` and ``merges.txt``, given as a file or as their directory."""
        tokenizers, path = _package(), Path(path)
        file = path / "tokenizer.json" if path.is_dir() else path
        if file.is_file():
            try:
                return cls(tokenizers.Tokenizer.from_file(str(file)), _closing(file.parent))
            except ValueError:
                raise
            except Exception as error:  # the package raises plain exceptions
                raise errors.value(
                    "BytePairTokenizer", f"{file.name} must be a tokenizers file", str(error)[:80]
                ) from error
        vocabulary, merges = path / "vocab.json", path / "merges.txt"
        if not (vocabulary.is_file() and merges.is_file()):
            must = f"{str(path)!r} must be a tokenizer.json, or a directory with one or with vocab.json and merges.txt"
            raise errors.value("BytePairTokenizer", must, "none of them")
        inner = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(vocabulary), str(merges)))
        inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = tokenizers.decoders.ByteLevel()
        closing = _closing(path) or END
        if inner.token_to_id(closing) is not None:  # what the vocabulary lacks, the model has no number for
            inner.add_special_tokens([closing])
        return cls(inner, closing)

    @classmethod
    def wrap(cls, tokenizer: Any) -> BytePairTokenizer:
        """Return a fast tokenizer of transformers as one of these."""
        return cls(_package().Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()), tokenizer.eos_token)

    @property
    def size(self) -> int:
        """The number of tokens."""
        return int(self.inner.get_vocab_size())

    def encode(self, text: str) -> np.ndarray:
        """Return the tokens of a text."""
        return np.array(self.inner.encode(text, add_special_tokens=False).ids, dtype=np.int64)

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens."""
        return str(self.inner.decode([int(token) for token in tokens]))

    def dump(self) -> str:
        """Return the tokenizer as JSON."""
        kept = {"kind": "bytepair", "tokenizer": self.inner.to_str(), "end": self.inner.id_to_token(self.end)}
        return json.dumps(kept)


def _closing(folder: Path) -> str | None:
    """Return the closing token that the files beside a tokenizer name, if they do."""
    for file in (folder / "tokenizer_config.json", folder / "special_tokens_map.json"):
        if file.is_file():
            said = json.loads(file.read_text(encoding="utf-8")).get("eos_token")
            said = said.get("content") if isinstance(said, dict) else said
            if said:
                return str(said)
    return None


def _package() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise errors.missing("BytePairTokenizer", "tokenizers", "language") from error
    return tokenizers


def make(kind: str, texts: Sequence[str], size: int) -> Tokenizer:
    """Return the tokenizer of a kind for these texts: "character", "bytepair", or the path of a file."""
    if kind == "character":
        return CharacterTokenizer.train(texts)
    return BytePairTokenizer.train(texts, size) if kind == "bytepair" else BytePairTokenizer.read(kind)


def restore(dump: str) -> Tokenizer:
    """Return the tokenizer that was dumped."""
    kept = json.loads(dump)
    if kept["kind"] == "character":
        return CharacterTokenizer(kept["characters"])
    return BytePairTokenizer(_package().Tokenizer.from_str(kept["tokenizer"]), kept.get("end"))


class KeepsTokenizer:
    """Makes a model's file hold ``tokenizer_`` as text, which ``_restore`` reads again."""

    _restore: Any = staticmethod(restore)
    _start = ("pretrained_", "tuning_", "tokenizer_", "n_tokens_", "options_", "dtype_", "ends_")
    _places_weights = True
    _fitted = {
        "tokenizer_": Maybe(Text()),
        "n_tokens_": Count(1),
        "options_": Plain(),
        "dtype_": Dtype(),
        "ends_": Maybe(Plain()),
    }

    def _saved_attributes(self) -> dict[str, Any]:
        kept = super()._saved_attributes()  # type: ignore[misc]
        if kept.get("tokenizer_") is not None:
            kept["tokenizer_"] = kept["tokenizer_"].dump()
        return kept

    def _load_attributes(self, fitted: dict[str, Any]) -> None:
        if fitted.get("tokenizer_") is not None:
            fitted["tokenizer_"] = self._restore(fitted["tokenizer_"])
        super()._load_attributes(fitted)  # type: ignore[misc]
