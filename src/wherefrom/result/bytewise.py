"""Tokens of byte-level vocabularies that are no characters by themselves, by their bytes, as SentencePiece names them.

    Ø      the byte D8, with which letters of Arabic begin         <0xD8>
    ĠÃ     a blank and the byte C3                                 Ġ<0xC3>
    Ã³     the bytes C3 B3, which are ó                            stays as it is

Such a vocabulary writes every byte as a letter (GPT-2's table); ByT5's writes it as the character of that number.
"""

from __future__ import annotations

import re

_PRINTED = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]  # written as the character of that number
_LETTERS = {byte: chr(byte) for byte in _PRINTED} | {
    byte: chr(0x100 + place) for place, byte in enumerate(sorted({*range(0x100)} - {*_PRINTED}))
}
_BYTES = {chr(byte): byte for byte in range(0x80, 0x100)} | {letter: byte for byte, letter in _LETTERS.items()}
_NAMED = re.compile("<0x([0-9A-Fa-f]{2})>")
BLANK = _LETTERS[0x20]


def by_bytes(token: str) -> str:
    """A token of a byte-level vocabulary; bytes in it that are no whole character by their numbers.

    >>> by_bytes("Ø"), by_bytes("ĠÃ"), by_bytes("Ã³"), by_bytes("[CLS]")
    ('<0xD8>', 'Ġ<0xC3>', 'Ã³', '[CLS]')
    """
    if any(letter not in _BYTES for letter in token):
        return token
    left, found = bytes(_BYTES[letter] for letter in token), ""
    while left:
        try:
            whole, broken, left = left.decode(), b"", b""
        except UnicodeDecodeError as at:
            whole, broken, left = left[: at.start].decode(), left[at.start : at.end], left[at.end :]
        found += whole.replace(" ", BLANK) + "".join(f"<0x{byte:02X}>" for byte in broken)
    return found if _NAMED.search(found) else token


def part_of_a_character(token: str) -> bool:
    """Whether a token holds bytes that are no whole character, whoever named them.

    >>> [part_of_a_character(token) for token in ["Ø", "<0xD8>", "Ã³", "cat"]]
    [True, True, False, False]
    """
    return _NAMED.search(by_bytes(token)) is not None


def in_letters_of_bytes(text: str) -> str:
    """How GPT-2's table writes a text, every byte as a letter.

    >>> in_letters_of_bytes(" –"), in_letters_of_bytes("ó")
    ('ĠâĢĵ', 'Ã³')
    """
    return "".join(_LETTERS[byte] for byte in text.encode())


def in_capitals(name: str) -> str:
    """A name with its bytes as they are written here: "<0xd8>" is "<0xD8>"."""
    return _NAMED.sub(lambda byte: f"<0x{byte[1].upper()}>", name)


def spellings_of_blank(text: str) -> list[str]:
    """How vocabularies may write white space: in GPT-2's letters, in SentencePiece's, as it stands."""
    return [in_letters_of_bytes(text), text.replace(" ", "▁"), text]


def spellings(name: str) -> list[str]:
    """How vocabularies may write the token that has this name: as it stands, in GPT-2's letters, in ByT5's.

    Nothing where no byte is named.
    """
    if not _NAMED.search(name):
        return []
    found = b""
    for place, part in enumerate(_NAMED.split(name.replace(BLANK, " "))):
        found += bytes([int(part, 16)]) if place % 2 else part.encode()
    return [name, "".join(_LETTERS[byte] for byte in found), found.decode("latin-1")]
