"""What tests of the specification share."""

import jaxtyping
import pytest


@pytest.fixture
def unchecked():
    """Without the run-time type checker, as users run: it would refuse a wrong literal itself."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
