"""Better generalisation by other means than penalties: bagging, distillation, self-supervision, multi-task learning."""

from corollary.regularisation.bagging import Bagging, BaggingClassifier, BaggingRegressor
from corollary.regularisation.contrastive import ContrastivePredictiveCoding, info_nce
from corollary.regularisation.distillation import Distiller
from corollary.regularisation.multitask import MultiTaskNet
from corollary.regularisation.semisupervised import Consistency, SelfTraining
from corollary.regularisation.tasks import PatchPretrainer, RotationPretrainer, linear_probe

__all__ = [
    "Bagging",
    "BaggingClassifier",
    "BaggingRegressor",
    "Consistency",
    "ContrastivePredictiveCoding",
    "Distiller",
    "MultiTaskNet",
    "PatchPretrainer",
    "RotationPretrainer",
    "SelfTraining",
    "info_nce",
    "linear_probe",
]
