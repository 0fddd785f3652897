"""The command `wherefrom`: what it does is in wherefrom/cli, which takes a while to be read."""

from wherefrom.interrupts import end_at_once


def main() -> None:
    end_at_once()
    from wherefrom.cli import main as run

    run()


if __name__ == "__main__":
    main()
