"""Which of these works on my data? One board over every system that can do the task.

:func:`compare` finds the systems by role, adds baselines and scikit-learn's usual estimators, fits them all to the same
splits and measures them alike. ``contest`` runs it, ``tasks`` and ``measures`` say what is measured, ``rivals`` and
``baselines`` who takes part, ``statistics`` what can be told apart, ``densities`` how densities are made comparable,
``chosen`` and ``foreign`` how models are kept in files.
"""

from corollary.comparison.board import Leaderboard
from corollary.comparison.chosen import Chosen
from corollary.comparison.contest import compare
from corollary.comparison.tasks import task_of
from corollary.roletable import TASKS, Task

__all__ = ["TASKS", "Chosen", "Leaderboard", "Task", "compare", "task_of"]
