"""Random streams, epoch by epoch: the output equals the oracle, each result once."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from braidstream.testing.strategies import Case, many_streams, two_streams
from tests.backends import Backend, expected, multiset


def example_settings(backend: Backend) -> settings:
    """As many examples as the backend is fast enough for; the slow ones are not made smaller when they fail."""
    phases = [phase for phase in Phase if phase is not Phase.explain and (backend.n_examples > 50 or phase is not Phase.shrink)]
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.nested_given]
    return settings(
        max_examples=backend.n_examples, deadline=None, phases=phases, suppress_health_check=quiet, derandomize=True
    )


def test_two_streams_give_what_the_oracle_says(run_join: Backend) -> None:
    @example_settings(run_join)
    @given(two_streams(), st.integers(1, 7), st.integers(1, 64))
    def holds(case: Case, slots: int, groups: int) -> None:
        assert multiset(run_join(case, slots, groups)) == multiset(expected(case))

    holds()
