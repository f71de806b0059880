"""The slow lane itself, without its fits."""

import os
import signal
import sys
import time
from types import SimpleNamespace

import pytest
from results.tables import processor_time

from corollary.engine.learner import Iteration
from corollary.engine.loop import drive
from corollary.engine.run import Run
from corollary.errors import FitStopped
from results import __main__ as lane


class Ended(Iteration):
    """Is asked to end in its first step."""

    def sweep(self):
        os.kill(os.getpid(), self.number)
        return {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_result_that_is_ended_writes_no_page(tmp_path, monkeypatch, number):
    """Its fits used to hear the signal, and to end early: a page of half-trained models was written."""

    def run(out):
        learner = Ended(3)
        learner.number = number
        drive(learner, Run(progress=False), owner="Ended")
        (out / "page.md").write_text("half")

    monkeypatch.setattr(lane, "OUT", tmp_path)
    monkeypatch.setitem(sys.modules, "results.rings", SimpleNamespace(run=run))
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended:
        lane.main(["rings"])
    assert ended.value.code == 128 + number
    assert not list(tmp_path.iterdir())
    assert signal.getsignal(number) == before


class Sleeper(Iteration):
    """Takes time, but nothing of the processor."""

    def sweep(self):
        time.sleep(0.1)
        return {}


def test_limits_of_the_slow_lane_count_the_processor():
    run = Run(time_limit=0.5, progress=False)
    with processor_time():
        assert drive(Sleeper(6), run, owner="Sleeper").stopped == "done"
    with pytest.warns(FitStopped, match="time limit"):
        drive(Sleeper(6), run, owner="Sleeper")
