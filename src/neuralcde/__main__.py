"""`python -m neuralcde` is the command line."""

from .cli import main

main()
