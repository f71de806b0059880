"""Attacks on classifiers, and what stands up to them.

``pgd``, ``fgsm`` and ``deepfool`` attack any ``torch.nn.Module`` and any fitted classifier. ``PGD``, ``FGSM`` and ``DeepFool``
are the same as objects, the first two also for ``Training(adversary=...)``.
"""

from corollary.attack.base import AttackResult
from corollary.attack.deepfool import DeepFool, deepfool
from corollary.attack.pgd import FGSM, PGD, fgsm, pgd

__all__ = ["FGSM", "PGD", "AttackResult", "DeepFool", "deepfool", "fgsm", "pgd"]
