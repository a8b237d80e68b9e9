"""`python -m reflex.sidecar`: the sidecar without its launcher."""

from .main import main

if __name__ == "__main__":
    main()
