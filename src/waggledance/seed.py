"""Seeds: every draw of a node has a seed of its own, derived from words.

No generator lives longer than the draw it serves, so a node that resumes at round 70 draws what it would
have drawn without the pause, and adding a draw in one place moves none elsewhere.
"""

import hashlib

BITS = 63
"""Derived seeds fit a signed 64-bit integer, which is what torch and numpy accept."""


def derive(*words: str | int) -> int:
    """A number below 2**63 that depends on every word, its place and its type; the same on every machine."""
    text = "\x1f".join(f"{type(word).__name__}:{word}" for word in words)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - BITS)
