"""BERT's WordPiece tokenizer: pieces of words, and the special tokens [CLS], [SEP], [PAD] and [MASK]."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from corollary import errors

__all__ = ["WordPieces"]

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PRIVATE = 0xF0000  # the first of 131,068 characters that no text has


class WordPieces:
    """Texts as pieces of words and back, by the package ``tokenizers``.

    Parameters
    ----------
    inner : tokenizers.Tokenizer
        What does the work; it must know the five special symbols.
    """

    def __init__(self, inner: Any) -> None:
        inner.no_padding()  # files often bring both, for batches of their own
        inner.no_truncation()
        self.inner = inner
        numbers = [inner.token_to_id(name) for name in SPECIAL]
        if None in numbers:
            missing = SPECIAL[numbers.index(None)]
            raise errors.value(
                "BERT", f"the tokenizer must know {', '.join(SPECIAL)}", f"one without {missing}"
            )
        self.pad, self.unknown, self.open, self.part, self.mask = numbers

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> WordPieces:
        """Learn ``size`` pieces from texts, in lower case; the same texts give the same pieces in every process."""
        tokenizers = _package()
        inner = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
        _dress(inner, tokenizers)
        inner.model = tokenizers.models.WordPiece(_learned(inner, texts, size, tokenizers), unk_token="[UNK]")
        inner.add_special_tokens(list(SPECIAL))
        return cls(inner)

    @classmethod
    def read(cls, path: str | Path) -> WordPieces:
        """Read ``tokenizer.json`` or ``vocab.txt``, given as a file or as its directory."""
        tokenizers, path = _package(), Path(path)
        names = ("tokenizer.json", "vocab.txt")
        file = next((path / n for n in names if (path / n).is_file()), path) if path.is_dir() else path
        if not file.is_file():
            raise errors.value("BERT", f"{str(path)!r} must hold tokenizer.json or vocab.txt", "neither")
        try:
            if file.suffix == ".json":
                return cls(tokenizers.Tokenizer.from_file(str(file)))
            model = tokenizers.models.WordPiece.from_file(str(file), unk_token="[UNK]")
        except ValueError:
            raise
        except Exception as error:  # the package raises plain exceptions
            raise errors.value("BERT", f"{file.name} must be a tokenizers file", str(error)[:80]) from error
        inner = tokenizers.Tokenizer(model)
        inner.add_special_tokens([name for name in SPECIAL if inner.token_to_id(name) is not None])
        _dress(inner, tokenizers, **_habits(file.with_name("tokenizer_config.json")))
        return cls(inner)

    @classmethod
    def wrap(cls, tokenizer: Any) -> WordPieces:
        """Return a fast tokenizer of transformers as one of these."""
        return cls.restore(tokenizer.backend_tokenizer.to_str())

    @classmethod
    def restore(cls, dump: str) -> WordPieces:
        """Return the tokenizer that was dumped."""
        return cls(_package().Tokenizer.from_str(dump))

    def dump(self) -> str:
        """Return the tokenizer as JSON."""
        return str(self.inner.to_str())

    @property
    def size(self) -> int:
        """The number of pieces."""
        return int(self.inner.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """Return the pieces of a text, without opening and parting symbols."""
        return list(self.inner.encode(text, add_special_tokens=False).ids)

    def encode_all(self, texts: list[str]) -> list[list[int]]:
        """Return the pieces of each text."""
        return [found.ids for found in self.inner.encode_batch(texts, add_special_tokens=False)]

    def encode_words(self, words: list[str]) -> list[list[int]]:
        """Return the pieces of each word, at least one: a word of which nothing is left is unknown."""
        return [pieces or [self.unknown] for pieces in self.encode_all(words)]

    def locate(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the pieces of a text, and where in it each begins and ends."""
        found = self.inner.encode(text, add_special_tokens=False)
        return list(found.ids), list(found.offsets)

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of pieces."""
        return str(self.inner.decode([int(token) for token in tokens], skip_special_tokens=True))

    def piece(self, token: int) -> str:
        """Return one piece as it stands in a text."""
        return str(self.inner.id_to_token(token)).removeprefix("##")

    def __getstate__(self) -> str:
        return self.dump()

    def __setstate__(self, state: str) -> None:
        self.__init__(_package().Tokenizer.from_str(state))  # type: ignore[misc]


def _learned(inner: Any, texts: Iterable[str], size: int, tokenizers: Any) -> dict[str, int]:
    """Return pieces and their numbers, by byte-pair merges.

    The package numbers characters inside words, ``##x``, in an order that changes from process to process, and breaks ties
    by these numbers. So they are given to it as characters of their own, which it sorts.
    """
    words = [
        [word for word, _ in inner.pre_tokenizer.pre_tokenize_str(inner.normalizer.normalize_str(text))]
        for text in texts
    ]
    letters = sorted({letter for text in words for word in text for letter in word})
    inside = {ord(letter): chr(PRIVATE + i) for i, letter in enumerate(letters)}
    plain = {PRIVATE + i: letter for i, letter in enumerate(letters)}
    pairs = tokenizers.Tokenizer(tokenizers.models.BPE())
    pairs.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(SPECIAL), show_progress=False
    )
    marked = (" ".join(word[0] + word[1:].translate(inside) for word in text) for text in words)
    pairs.train_from_iterator(marked, trainer)
    return {
        ("##" if ord(piece[0]) >= PRIVATE else "") + piece.translate(plain): number
        for piece, number in pairs.get_vocab().items()
    }


def _dress(inner: Any, tokenizers: Any, *, lowercase: bool = True, **habits: Any) -> None:
    inner.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase, **habits)
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    inner.decoder = tokenizers.decoders.WordPiece()


def _habits(file: Path) -> dict[str, Any]:
    """Return how ``vocab.txt`` is to be used, from the file beside it: cased models keep capitals and accents."""
    said = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    ours = {
        "lowercase": "do_lower_case",
        "strip_accents": "strip_accents",
        "handle_chinese_chars": "tokenize_chinese_chars",
    }
    return {name: said[theirs] for name, theirs in ours.items() if theirs in said}


def _package() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise errors.missing("BERT", "tokenizers", "language") from error
    return tokenizers
