"""Run the command line: `python -m penstock`."""

from penstock.entrypoints.cli import main

if __name__ == "__main__":
    main()
