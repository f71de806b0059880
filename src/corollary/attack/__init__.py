"""Attacks on classifiers, and what stands up to them.

``pgd``, ``fgsm`` and ``deepfool`` attack any ``torch.nn.Module`` and any fitted classifier. ``PGD``, ``FGSM`` and ``DeepFool``
are the same as objects, the first two also for ``Training(adversary=...)``. ``evaluate`` measures the accuracy under attack over
the radius; ``smooth`` certifies a radius by randomised smoothing, :mod:`corollary.theory.lipschitz` one by Lipschitz constants.
"""

from corollary.attack.base import AttackResult
from corollary.attack.curve import RobustnessCurve, evaluate
from corollary.attack.deepfool import DeepFool, deepfool
from corollary.attack.pgd import FGSM, PGD, fgsm, pgd
from corollary.attack.smoothing import Certificate, smooth

__all__ = [
    "FGSM",
    "PGD",
    "AttackResult",
    "Certificate",
    "DeepFool",
    "RobustnessCurve",
    "deepfool",
    "evaluate",
    "fgsm",
    "pgd",
    "smooth",
]
