"""Settings of all tests."""

from hypothesis import settings

# The same examples at every run, and no clock: a slow machine is no failure.
settings.register_profile("mombroker", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("mombroker")
