"""The checker of annotations that the import hook of conftest.py applies to the package."""

from beartype import BeartypeConf, beartype
from beartype._check.code import codemain

# Of a list beartype looks at one item, drawn by random.getrandbits. Here it is the first one: the same in every run, and
# the state of Python's generator is left to the tests.
codemain.getrandbits = lambda bits: 0

# An integer may stand wherever a float may, as mypy has it.
checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
