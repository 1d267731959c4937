"""Grants: founder, seat and node hang together or they do not."""

import os
from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from waggledance.swarm.grant import Passport, grant, is_sound, passport, public_of

FOUNDER, SEAT, NODE = os.urandom(32), os.urandom(32), os.urandom(32)
SWARM = "0123456789abcdef"
GRANTED = grant(FOUNDER, SWARM, public_of(SEAT), 77)
SHOWN = passport(GRANTED, SEAT, SWARM, public_of(NODE))


def sound(shown: Passport, founder: bytes = FOUNDER, swarm: str = SWARM, node: bytes = NODE) -> bool:
    return is_sound(shown, public_of(founder), swarm, public_of(node))


def test_an_honest_passport_is_sound() -> None:
    assert sound(SHOWN)


def test_it_holds_for_its_founder_its_swarm_and_its_node_only() -> None:
    other = os.urandom(32)
    assert not sound(SHOWN, founder=other)
    assert not sound(SHOWN, swarm="fedcba9876543210")
    assert not sound(SHOWN, node=other)


def test_a_seat_cannot_extend_its_grant_nor_lend_its_word() -> None:
    later = msgspec.structs.replace(GRANTED, expires=78)
    never = msgspec.structs.replace(GRANTED, expires=0)
    stolen = msgspec.structs.replace(GRANTED, seat=public_of(os.urandom(32)))
    for granted in (later, never, stolen):
        assert not sound(replace(SHOWN, grant=granted))
    forger = os.urandom(32)
    own_word = passport(grant(forger, SWARM, public_of(SEAT), 0), SEAT, SWARM, public_of(NODE))
    assert not sound(own_word)


@given(st.binary(min_size=64, max_size=64), st.binary(min_size=32, max_size=32))
def test_arbitrary_signatures_and_keys_are_unsound_and_raise_nothing(signature: bytes, key: bytes) -> None:
    assert not sound(replace(SHOWN, vouched=signature))
    assert not sound(replace(SHOWN, grant=msgspec.structs.replace(GRANTED, signature=signature)))
    assert not sound(replace(SHOWN, grant=msgspec.structs.replace(GRANTED, seat=key)))
    assert not is_sound(SHOWN, key, SWARM, public_of(NODE))
    assert not is_sound(SHOWN, public_of(FOUNDER), SWARM, key)
