"""The encoding of text that is not UTF-8: candidates are decoded, and the most plausible reading wins.

A single-byte encoding can read nearly any bytes, so every candidate is decoded and its characters beyond ASCII are
scored:

==============  ==========================================================================================
letters         half for belonging to the alphabet of the language that explains most of them, more for its
                frequent ones; half for neighbours of the other sort, since vowels stand beside consonants
case            a capital after a small letter inside a word speaks against the reading
signs           quotes, dashes, currencies and units count, unless they stand between letters
mixed scripts   a Latin letter beside one of another script in one word speaks against the reading
ideographs      those of the first level of their national standard count most; half-width kana and rare ones
                little, since random bytes give those
==============  ==========================================================================================

Where readings are equally plausible, as they are for one or two letters, the first of :data:`CANDIDATES` is taken.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Callable
from functools import cache

__all__ = ["CANDIDATES", "decodes", "plausible", "wide_encoding"]

# The letters of languages beyond a to z, the most frequent first.
_LATIN = (
    "äüöß",  # German
    "éàèêçôîûâùïëœæüÿ",  # French
    "óáíéñúü",  # Spanish
    "ãçéáíóêõúâàôü",  # Portuguese
    "èàòùìé",  # Italian
    "ëéïèöüáóç",  # Dutch
    "äöåé",  # Swedish, Finnish
    "øæåé",  # Danish, Norwegian
    "íáðéóúæþöý",  # Icelandic
)
_CENTRAL = (
    "łąęóżśćńź",  # Polish
    "íáěéřčžýšůúťňďó",  # Czech
    "áíčžšťéýúľňôäďóŕĺ",  # Slovak
    "áéöíóőüúű",  # Hungarian
    "ăîşâţ",  # Romanian
    "čšžćđ",  # Croatian, Slovene
)
_CYRILLIC = (
    "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё",  # Russian, Bulgarian
    "оанивіертслкдмпузяьбгчйхцїжюєщфшґ",  # Ukrainian
    "анірыолкесдтмпцвязугбьшчюхэйўжфё",  # Belarusian
    "аоиенрсјткувдмплзбгњшчхћжцђљфџ",  # Serbian
)
_BALTIC = ("ėšžąįųūčę", "āīēšūļņžķģč", "äõüöšž")  # Lithuanian, Latvian, Estonian
_GREEK = ("αοιετνσηρπςκμλυίάόγδέήωχθφύώβξζψϊϋΐΰ",)
_TURKISH = ("ıüşğçöİîâû",)
_HEBREW = ("יהולאתרבשמנםדקעפחכטסגצזךןףץ",)
_ARABIC = ("الينمتروبعدسفهكقحجةشصطخأذءزضغئثىظإآؤپچژگ",)

# The likeliest first; single-byte encodings with the alphabets that are written in them.
CANDIDATES: dict[str, tuple[str, ...]] = {
    "cp1252": _LATIN,
    "cp1250": _CENTRAL,
    "cp1251": _CYRILLIC,
    "cp932": (),
    "cp949": (),
    "euc_jp": (),
    "gb18030": (),
    "big5": (),
    "cp1254": _TURKISH,
    "cp1253": _GREEK,
    "cp1257": _BALTIC,
    "cp1255": _HEBREW,
    "cp1256": _ARABIC,
    "iso8859_2": _CENTRAL,
    "koi8_r": _CYRILLIC[:1],
    "koi8_u": _CYRILLIC[1:2],
    "cp866": _CYRILLIC[:1],
    "cp850": _LATIN,
}
_SIGNS = frozenset("“”„‘’‚«»‹›–—…€£¥$§°²³µ±×·•®©™½¼¾ºª¿¡№\u00a0")
_VOWELS = frozenset("aeiouyæøœıаеёиоуыэюяєіїαεηιουω")
_FREQUENT = {  # characters that are met on every page, to tell encodings apart that share their bytes
    "cp949": "이다의는에을를가고하지은도로한사기서아리인나시대자부어들해과수정그전주일상김박최구동산안울경",
    "gb18030": "的一是不了在人有我他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自家可她里后小北京海广州市李王张刘陈",
}
_PLAIN = bytes([0, *range(9, 14), 26, 27, *range(32, 256)])  # no control characters but these
_AMOUNT = 6000  # bytes of lines with other than ASCII that are looked at
_BETTER = 0.01  # what a later candidate must be ahead by
_RARE = 0.03  # what those after the first eight must be ahead by, besides


def decodes(raw: bytes, encoding: str, whole: bool) -> bool:
    """Whether bytes are valid in an encoding; with ``whole=False`` the last character may be cut."""
    try:
        codecs.getincrementaldecoder(encoding)().decode(raw, final=whole)
    except UnicodeDecodeError:
        return False
    return True


def plausible(raw: bytes, whole: bool = False) -> str:
    """Return the encoding that makes the most plausible text of bytes that are not UTF-8; Latin-1 can always be.

    >>> plausible("Zażółć gęślą jaźń".encode("cp1250")), plausible("Съешь ещё булок".encode("cp1251"))
    ('cp1250', 'cp1251')
    """
    able = [encoding for encoding in CANDIDATES if decodes(raw, encoding, whole)]
    some = _telling(raw)
    best, most = "latin-1", -1.0
    usual = [*CANDIDATES][:8]
    for encoding in able:
        score = _score(some.decode(encoding, errors="ignore"), encoding) - _RARE * (encoding not in usual)
        if score > most + _BETTER:
            best, most = encoding, score
    return best


def wide_encoding(raw: bytes, whole: bool = False) -> str | None:
    r"""Return which of UTF-16 and UTF-32 bytes with zeros among them are, without a mark, or None.

    >>> wide_encoding("имя,возраст\nАня,30\n".encode("utf-16-be"))
    'utf-16-be'
    """
    head = raw[:4096]
    few = head.count(0) < 0.3 * len(head) and not head.translate(None, _PLAIN)
    if few and decodes(raw, "utf-8", whole):
        return None  # plain text with stray zeros
    best, least = None, 0.01  # share of characters that no text has
    for encoding, size in (("utf-32-le", 4), ("utf-32-be", 4), ("utf-16-le", 2), ("utf-16-be", 2)):
        if (len(raw) % size and whole) or not decodes(raw, encoding, whole):
            continue
        text = head.decode(encoding, errors="ignore")
        odd = sum(unicodedata.category(c) in ("Cc", "Cn", "Co") and c not in "\t\n\r\f\v\x1a" for c in text)
        if text and odd / len(text) < least and _one_language(text):
            best, least = encoding, odd / len(text)
            if not odd:
                return best
    return best


def _one_language(text: str) -> bool:
    """Whether the characters are of few blocks of 256, or ideographs: random pairs of bytes are of all of them."""
    blocks = {ord(c) >> 8 for c in text if not 0x3000 <= ord(c) < 0xD7B0}
    return any(c in text for c in "\n ,;\t") and len(blocks) <= max(2, min(8, len(text) // 8))


def _telling(raw: bytes) -> bytes:
    """Return lines with bytes beyond ASCII, from everywhere."""
    lines = [line for line in raw.split(b"\n") if not line.isascii()]
    size = sum(map(len, lines)) + len(lines)
    return b"\n".join(lines[:: max(1, -(-size // _AMOUNT))])[: 2 * _AMOUNT]


def _score(text: str, encoding: str) -> float:
    """Return how plausible a reading is, between about -1 and 1: the mean over its characters beyond ASCII."""
    if any(unicodedata.category(c) in ("Cc", "Cn", "Co") and c not in "\t\n\r\f\v\x1a" for c in text):
        return -1.0
    alphabets = CANDIDATES[encoding]
    strange = [i for i, c in enumerate(text) if ord(c) > 127]
    if not strange:
        return 0.0
    if not alphabets:
        common = _common(encoding)
        return sum(_ideograph(text, i, common) for i in strange) / len(strange)
    letters = [text[i] for i in strange if text[i].isalpha()]
    cover = max(alphabets, key=lambda alphabet: sum(_belongs(c, alphabet) for c in letters))
    return sum(_character(text, i, cover) for i in strange) / len(strange)


def _character(text: str, i: int, alphabet: str) -> float:
    c = text[i]
    near = [n for n in (text[i - 1 : i] if i else "", text[i + 1 : i + 2]) if n.isalpha()]
    if c in _SIGNS or not c.isalpha():
        apart = len(near) < 2 or c in "’·\u00a0«»“”"
        return (0.8 if c in _SIGNS else 0.2) if apart else -0.5
    if any((_script(n) == "LATIN") != (_script(c) == "LATIN") for n in near):
        return -0.5
    score = _belongs(c, alphabet) + 0.5 * _alternation(c, near)
    return score - 0.5 * (c.isupper() and text[i - 1 : i].islower())


@cache
def _belongs(c: str, alphabet: str) -> float:
    place = alphabet.find(c) if c in alphabet else alphabet.find(c.lower())
    return 0.0 if place < 0 else 0.5 - 0.2 * place / len(alphabet)


def _alternation(c: str, near: list[str]) -> float:
    """Return the share of neighbours that are vowels beside a consonant, or the reverse."""
    if near and _script(c) in ("HEBREW", "ARABIC"):  # vowels are not written
        return 0.75
    others = [_is_vowel(n) != _is_vowel(c) for n in near]
    return sum(others) / len(others) if others else 0.5


@cache
def _script(c: str) -> str:
    return unicodedata.name(c, "").split(" ")[0]


@cache
def _is_vowel(c: str) -> bool:
    return c.lower() in _VOWELS or (c not in "йўЙЎ" and unicodedata.normalize("NFD", c.lower())[0] in _VOWELS)


# --- ideographs ------------------------------------------------------------------------------------------


def _ideograph(text: str, i: int, common: Callable[[str], float]) -> float:
    c = text[i]
    if 0xFF61 <= ord(c) <= 0xFF9F:  # half-width kana
        return 0.2
    if 0x3000 <= ord(c) <= 0x3020 or 0xFF01 <= ord(c) <= 0xFF60:  # punctuation
        return 0.8
    beside = re.match("[A-Za-z]", text[i + 1 : i + 2]) or re.match("[A-Za-z]", text[i - 1 : i])
    return common(c) - (0.5 if beside else 0.0)


@cache
def _common(encoding: str) -> Callable[[str], float]:
    """Return what says how common a character is in the language of a multi-byte encoding."""
    codec, low, high = {
        "cp932": ("euc_jp", 0xB0A1, 0xCFD3),  # level 1 of JIS X 0208
        "euc_jp": ("euc_jp", 0xB0A1, 0xCFD3),
        "cp949": ("euc_kr", 0xB0A1, 0xC8FE),  # the syllables of KS X 1001
        "gb18030": ("gb2312", 0xB0A1, 0xD7F9),  # level 1 of GB 2312
        "big5": ("big5", 0xA440, 0xC67E),  # level 1 of Big5
    }[encoding]
    kana = codec == "euc_jp"
    frequent = _FREQUENT.get(encoding, "")

    @cache
    def common(c: str) -> float:
        if c in frequent or (kana and 0x3041 <= ord(c) <= 0x30FE):
            return 1.0
        try:
            code = int.from_bytes(c.encode(codec), "big")
        except UnicodeEncodeError:
            return 0.1
        return 0.95 if low <= code <= high else 0.3

    return common
