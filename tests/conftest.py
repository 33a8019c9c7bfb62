"""Settings of all tests; that this file exists also puts tests/ on the import path, where shared modules lie."""

from hypothesis import settings

# The same examples in every run: a red build is a fault of the change at hand. Fresh ones: --hypothesis-profile=fresh.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("fresh", deadline=None, print_blob=True)
settings.load_profile("same")
