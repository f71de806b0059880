r"""LaTeX as plain text, good enough to read on a terminal.

>>> plain_text(r"\frac{2\sqrt s}{\epsilon}")
'(2√s)/ε'
>>> plain_text(r"\Bigl\{ a \Bigr\} \|x\|")
'{ a } ‖x‖'
>>> plain_text(r"\hat\mu = \frac{1}{n} \sum_{i=1}^n x_i \le \lVert v \rVert_2^2")
'μ̂ = 1/n Σ_(i=1)^n x_i ≤ ‖ v ‖_2^2'
"""

from __future__ import annotations

import re

__all__ = ["plain_text"]

_GREEK = dict(
    zip(
        "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi pi rho sigma tau "
        "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega".split(),
        "αβγδεεζηθϑικλμνξπρστυφφχψωΓΔΘΛΞΠΣΦΨΩ",
    )
)
_SYMBOLS = {
    "approx": "≈", "ast": "*", "bigcup": "⋃", "bullet": "•", "cap": "∩", "cdot": "·", "cdots": "⋯", "circ": "∘",
    "colon": ":", "cup": "∪", "dots": "…", "ell": "ℓ", "emptyset": "∅", "equiv": "≡", "exists": "∃", "forall": "∀",
    "ge": "≥", "geq": "≥", "gets": "←", "iff": "⇔", "implies": "⇒", "in": "∈", "infty": "∞", "int": "∫", "langle": "⟨",
    "lceil": "⌈", "ldots": "…", "le": "≤", "leq": "≤", "leftarrow": "←", "Leftrightarrow": "⇔", "lfloor": "⌊",
    "ll": "≪", "gg": "≫", "lVert": "‖", "rVert": "‖", "lvert": "|", "rvert": "|", "mapsto": "↦", "mid": "|",
    "nabla": "∇", "ne": "≠", "neq": "≠", "notin": "∉", "odot": "⊙", "oplus": "⊕", "otimes": "⊗", "parallel": "∥",
    "partial": "∂", "perp": "⊥", "pm": "±", "prod": "Π", "propto": "∝", "quad": " ", "qquad": "  ", "rangle": "⟩",
    "rceil": "⌉", "rfloor": "⌋", "Rightarrow": "⇒", "rightarrow": "→", "searrow": "↘", "sim": "~", "star": "⋆",
    "subset": "⊂", "subseteq": "⊆", "succeq": "⪰", "preceq": "⪯", "succ": "≻", "sum": "Σ", "times": "×", "to": "→",
    "top": "ᵀ", "Vert": "‖", "vert": "|", "wedge": "∧", "vee": "∨", "neg": "¬", "setminus": "∖", "dagger": "†",
    "longrightarrow": "→", "ominus": "⊖", "hbar": "ħ", "lim": "lim", "land": "∧", "lor": "∨", "Vdash": "⊩",
}  # fmt: skip
_BLACKBOARD = {"E": "E", "R": "ℝ", "N": "ℕ", "Z": "ℤ", "C": "ℂ", "P": "P", "1": "1", "V": "V"}
_ACCENTS = {
    "hat": "\u0302",
    "widehat": "\u0302",
    "tilde": "\u0303",
    "widetilde": "\u0303",
    "bar": "\u0304",
    "overline": "\u0304",
    "dot": "\u0307",
}
_GROUP = r"\{((?:[^{}]|\{[^{}]*\})*)\}"


def plain_text(latex: str) -> str:
    """Return a formula in Unicode text."""
    text = latex.replace(r"\{", "\x01").replace(r"\}", "\x02").replace(r"\|", "‖")
    text = re.sub(r"\\(?:begin|end)\{[a-z*]+\}(?:\{[a-z]+\})?", "", text)
    text = re.sub(r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle)(?![A-Za-z])", "", text)
    text = re.sub(
        r"\\(?:mathrm|mathbf|mathcal|mathit|text|operatorname|boldsymbol|mathsf)\*?" + _GROUP, r"\1", text
    )
    text = re.sub(r"\\mathbb\s*\{?([A-Z1])\}?", lambda m: _BLACKBOARD.get(m[1], m[1]), text)
    text = re.sub(r"\\(?:mathcal|mathbf|mathrm)\s*([A-Za-z])", r"\1", text)
    for _ in range(4):  # fractions and roots nest
        text = re.sub(
            rf"\\[dt]?frac\s*{_GROUP}\s*{_GROUP}", lambda m: f"{_grouped(m[1])}/{_grouped(m[2])}", text
        )
        text = re.sub(r"\\[dt]?frac\s*(\w)\s*(\w)", r"\1/\2", text)
        text = re.sub(rf"\\sqrt\s*{_GROUP}", lambda m: f"√{_grouped(m[1])}", text)
        text = re.sub(r"\\sqrt\s*(\\?[A-Za-z]+|\d)", r"√\1", text)
        text = re.sub(rf"\\binom\s*{_GROUP}\s*{_GROUP}", r"C(\1, \2)", text)
    names = {**_GREEK, **_SYMBOLS}
    accents = "|".join(_ACCENTS)
    text = re.sub(r"\\([A-Za-z]+)", lambda m: m[0] if m[1] in _ACCENTS else names.get(m[1], m[1]), text)
    text = re.sub(rf"\\({accents})\s*{_GROUP}", lambda m: m[2] + _ACCENTS[m[1]], text)
    text = re.sub(rf"\\({accents})\s*(\S)", lambda m: m[2] + _ACCENTS[m[1]], text)
    text = re.sub(rf"([_^]){_GROUP}", lambda m: m[1] + (m[2] if len(m[2]) == 1 else f"({m[2]})"), text)
    text = text.replace(r"\\", ";").replace("&", "").replace("{", "").replace("}", "")
    text = re.sub(r"\\[,;:! ]", " ", text).replace("\\", "").replace("~", " ~ ").replace("^ᵀ", "ᵀ")
    return re.sub(r"\s+", " ", text).replace("\x01", "{").replace("\x02", "}").strip()


def _grouped(part: str) -> str:
    return part if re.fullmatch(r"\s*(?:[\w.]+|\\[A-Za-z]+)\s*", part) else f"({part})"
