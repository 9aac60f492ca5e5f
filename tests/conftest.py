"""Settings of all tests."""

import signal

from hypothesis import settings

# The same examples at every run, and no clock: a slow machine is no failure.
settings.register_profile("mombroker", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("mombroker")

# A shell that starts something in the background makes it deaf to Ctrl-C, and with it the commands under test.
signal.signal(signal.SIGINT, signal.default_int_handler)
