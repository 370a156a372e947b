"""How many examples the property tests try: few in a fast run, many in a campaign."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

FEW = 12
MANY = 10  # times as many as in an ordinary run

# A test asserts no absolute time, and the machine may be doing other things.
_EVERYWHERE = settings(
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def register_profiles() -> None:
    """Registers the profiles fast, ordinary and campaign for --hypothesis-profile, and loads fast."""
    settings.register_profile("fast", _EVERYWHERE, max_examples=FEW)
    settings.register_profile("ordinary", _EVERYWHERE, max_examples=100)
    settings.register_profile("campaign", _EVERYWHERE, max_examples=100 * MANY)
    settings.load_profile("fast")


def examples(count: int) -> settings:
    """Returns settings for a test that tries so many examples in an ordinary run."""
    return settings(max_examples=scaled(count))


def scaled(count: int) -> int:
    """Returns the number of trials in this run of what is tried so often in an ordinary one."""
    by_profile = {"fast": min(count, FEW), "campaign": count * MANY}
    return by_profile.get(settings.get_current_profile_name(), count)
