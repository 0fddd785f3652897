"""The version, where every room can read it; pyproject.toml does too."""

__version__ = "0.2.0"
