"""`python -m braidstream` is the `braid` command."""

from braidstream.cli import main

if __name__ == "__main__":
    main()
