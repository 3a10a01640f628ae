"""`python -m zerosim`."""

from zerosim.cli import main

main()
