"""`python -m zerosim`: the same as the command."""

from zerosim.cli import main

if __name__ == "__main__":
    main(prog_name="zerosim")
