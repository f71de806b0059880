"""What scikit-learn's test files expect of the session that runs them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from borrowed import EXCUSED, Sometimes, reason  # noqa: E402

HERE = Path(__file__).parent


@pytest.fixture
def global_random_seed():
    return 42


@pytest.fixture(params=[np.float32, np.float64])
def global_dtype(request):
    return request.param


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.filterwarnings("default"))  # their warnings are theirs to judge
        why = reason(getattr(item.module, EXCUSED, {}), item.name)
        if why is not None:
            item.add_marker(pytest.mark.xfail(reason=str(why), strict=not isinstance(why, Sometimes)))
