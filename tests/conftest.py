"""What all tests share: threads, property tests that repeat, and the command line in this process."""

from __future__ import annotations

import os
import sys

import pytest

# Tests run side by side, one thread each; what must hold with several threads asks for them itself.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from hypothesis import settings  # noqa: E402

# The same examples on every run, so that a change is judged by itself; HYPOTHESIS_PROFILE=search draws new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


collect_ignore_glob = [
    "fixtures/*"
]  # scripts that record what other libraries say, in environments of their own


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return what runs a command in a directory of its own, in this process: its exit code, output and errors."""
    from corollary.cli import main

    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["corollary", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run
