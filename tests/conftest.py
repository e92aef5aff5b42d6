"""What every test may rely on: the same random numbers each time, and one thread."""

import pytest
import torch


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """Start each test from the same random state."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
