"""``python -m firesteel``."""

from firesteel.cli import CANCELLED

if __name__ == "__main__":
    try:
        from firesteel.cli.main import main

        main()
    except KeyboardInterrupt:  # while importing
        raise SystemExit(CANCELLED) from None
