"""`python -m reflex`: the command line without the launcher."""

from .cli.front import main

if __name__ == "__main__":
    main()
