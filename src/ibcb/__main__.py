"""`python -m ibcb` is the command line."""

from ibcb.cli import main

if __name__ == "__main__":
    main()
