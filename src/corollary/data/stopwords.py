"""Function words of some languages: what a bag of words leaves out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache

__all__ = ["LANGUAGES", "language_of", "stop_words"]

SHARE = 0.2  # of all words: running text has a third to a half of function words, other languages' lists far fewer
SAMPLE = 200  # documents that a language is told by

LANGUAGES: dict[str, str] = {
    "german": "aber alle allem allen aller alles als also am an andere anderen auch auf aus bei bin bis bist da damit dann "
    "das dass dein dem den denn der des dich die dies diese diesem diesen dieser dieses dir doch dort du durch ein "
    "eine einem einen einer eines er es etwas euch für gegen habe haben hat hatte hatten hier hin hinter ich ihm "
    "ihn ihnen ihr ihre ihrem ihren ihrer im in ins ist ja jede jedem jeden jeder jedes jetzt kann kein keine "
    "können man mehr mein meine mich mir mit muss nach nicht nichts noch nun nur ob oder ohne sehr sein seine "
    "seinem seinen seiner sich sie sind so über um und uns unser unter viel vom von vor war waren was weg weil wenn "
    "werden wie wieder will wir wird wo wurde wurden zu zum zur zwar zwischen",
    "french": "ai aie au aucun aussi autre aux avait avant avec avez avoir bien car ce ceci cela celle celles celui ces cet "
    "cette ceux chaque ci comme comment dans de depuis des donc dont du elle elles en encore entre est et étaient "
    "était été être eu eux fait font il ils je la le les leur leurs lui ma mais me même mes moi mon ne ni non nos "
    "notre nous on ont ou où par pas pendant peu peut plus pour pourquoi qu quand que quel quelle quelles quels qui "
    "sa sans se sera ses si son sont sous sur ta te tes toi ton tous tout toute toutes très tu un une vers vos "
    "votre vous y",
    "spanish": "al algo algunos ante antes aquel aquella así aún aunque cada como con contra cual cuando de del desde donde "
    "dos el él ella ellas ellos en entre era eran es esa esas ese eso esos esta está están estas este esto estos "
    "fue fueron ha había han hasta hay la las le les lo los más me mi mí mientras mis mucho muchos muy nada ni no "
    "nos nosotros nuestra nuestro o os otra otras otro otros para pero poco por porque pues que qué quien quién se "
    "sea ser si sí siempre sin sino sobre son su sus también tan tanto te tenía ti tiene todo todos tu tú tus un "
    "una uno unos usted y ya yo",
    "italian": "ad agli ai al alla alle allo anche ancora avere aveva c che chi ci ciò come con contro cosa così cui da dagli "
    "dai dal dalla dalle degli dei del della delle dello dentro di dopo dove e ed era erano fra gli ha hanno ho i "
    "il in io la le lei li lo loro lui ma me mentre mi mia mie mio molto ne negli nei nel nella nelle nello noi non "
    "nostra nostro o ogni oltre per perché però più poi prima quale quando quanto quella quelle quelli quello "
    "questa queste questi questo qui se sei senza si sia siamo sono sopra su sua sue sugli sui sul sulla suo suoi "
    "tra tutti tutto un una uno vi voi",
    "portuguese": "a ainda ao aos aquela aquele as às até cada com como da das de dela delas dele deles depois do dos e é ela "
    "elas ele eles em entre era eram essa essas esse esses esta está estão estas este estes eu foi foram há isso "
    "isto já lhe mais mas me mesmo meu meus minha minhas muito na não nas nem no nos nós nossa nosso num numa o os "
    "ou para pela pelas pelo pelos por porque quais qual quando que quem se sem ser seu seus só sobre sua suas "
    "também te tem têm ter teu toda todas todo todos tu tua um uma você vocês",
    "dutch": "aan al alles als altijd andere ben bij daar dan dat de der deze die dit doch doen door dus een eens en er ge "
    "geen geweest haar had heb hebben heeft hem het hier hij hoe hun iemand iets ik in is ja je kan kon kunnen maar "
    "me meer men met mij mijn moet na naar niet niets nog nu of om omdat ons ook op over reeds te tegen toch toen "
    "tot u uit uw van veel voor want waren was wat we wel werd wezen wie wij wil worden zal ze zelf zich zij zijn "
    "zo zonder zou",
}


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return the function words of a language; English ones are scikit-learn's.

    >>> "und" in stop_words("german"), "the" in stop_words("english")
    (True, True)
    """
    if language == "english":
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        return frozenset(ENGLISH_STOP_WORDS)
    return frozenset(LANGUAGES[language].split())


def language_of(texts: Sequence[str]) -> str | None:
    """Return the language whose function words are most of the texts' words, or None if they are few in all.

    >>> language_of(["Das ist ein kurzer Satz, und er ist auf Deutsch."]), language_of(["lorem ipsum dolor"])
    ('german', None)
    """
    step = max(1, len(texts) // SAMPLE)
    counts = Counter(word for text in texts[::step] for word in re.findall(r"\w+", text[:5000].lower()))
    total = counts.total()
    shares = {
        language: sum(counts[word] for word in stop_words(language)) / max(total, 1)
        for language in ("english", *LANGUAGES)
    }
    best = max(shares, key=shares.__getitem__)
    return best if shares[best] >= SHARE else None
