"""The fake's faults: each does what it says, and the same seed does it again."""

import pytest

from test_swarm_contract import PLENTY, group
from waggledance.errors import SwarmError, UsageError
from waggledance.rollout import Author
from waggledance.swarm.memory import Faults, MemoryHub, MemorySwarm

ANT, BEE, CICADA = Author("ant"), Author("bee"), Author("cicada")


def pair(faults: Faults, seed: int = 0) -> tuple[MemorySwarm, MemorySwarm]:
    hub = MemoryHub(faults, seed)
    return hub.join(ANT), hub.join(BEE)


def delivery(faults: Faults, seed: int) -> list[list[int]]:
    """Which indices arrive at which drain, of a hundred groups in ten rounds."""
    ant, bee = pair(faults, seed)
    arrivals: list[list[int]] = []
    for first in range(0, 100, 10):
        for index in range(first, first + 10):
            ant.publish(group(ANT, index))
        arrivals.append([g.index for g in bee.drain(PLENTY)])
    return arrivals


def test_the_same_seed_delivers_the_same() -> None:
    faults = Faults(max_delay_drains=3, dropped=0.2, duplicated=0.2, corrupted=0.2)
    assert delivery(faults, 1) == delivery(faults, 1)
    assert delivery(faults, 1) != delivery(faults, 2)


def test_one_receiver_s_faults_do_not_depend_on_the_others() -> None:
    faults = Faults(dropped=0.5)
    ant, bee = pair(faults)
    crowd = MemoryHub(faults)
    ant_in_crowd, bee_in_crowd = crowd.join(ANT), crowd.join(BEE)
    cicada = crowd.join(CICADA)
    for index in range(40):
        ant.publish(group(ANT, index))
        ant_in_crowd.publish(group(ANT, index))
        cicada.publish(group(CICADA, index))
    assert bee.drain(PLENTY) == [g for g in bee_in_crowd.drain(PLENTY) if g.author == ANT]


def test_dropped_never_arrive() -> None:
    assert not any(delivery(Faults(dropped=1.0), 0))
    lost = 100 - sum(map(len, delivery(Faults(dropped=0.3), 0)))
    assert 15 < lost < 45


def test_duplicated_arrive_twice() -> None:
    ant, bee = pair(Faults(duplicated=1.0))
    ant.publish(group(ANT))
    assert bee.drain(PLENTY) == [group(ANT), group(ANT)]


def test_corrupted_are_refused_or_still_keep_every_limit() -> None:
    ant, bee = pair(Faults(corrupted=1.0))
    for index in range(200):
        ant.publish(group(ANT, index))
    survivors = bee.drain(PLENTY)
    assert len(survivors) + sum(bee.traffic().refused.values()) == 200
    assert sum(bee.traffic().refused.values()) > 100


def test_delays_count_the_receiver_s_drains() -> None:
    ant, bee = pair(Faults(max_delay_drains=3))
    for index in range(100):
        ant.publish(group(ANT, index))
    arrivals = [len(bee.drain(PLENTY)) for _ in range(5)]
    assert sum(arrivals) == 100
    assert all(arrivals[:4])
    assert arrivals[4] == 0


def test_a_cut_swarm_hears_its_own_side_until_it_heals() -> None:
    hub = MemoryHub()
    ant, bee, cicada = hub.join(ANT), hub.join(BEE), hub.join(CICADA)
    hub.partition([ANT, BEE])
    ant.publish(group(ANT, 1))
    cicada.publish(group(CICADA, 2))
    assert (bee.drain(PLENTY), cicada.drain(PLENTY)) == ([group(ANT, 1)], [])
    assert (set(ant.peers()), set(cicada.peers())) == ({BEE}, set())
    hub.heal()
    ant.publish(group(ANT, 3))
    assert cicada.drain(PLENTY) == [group(ANT, 3)]
    assert ant.drain(PLENTY) == []


def test_a_name_is_given_once_and_must_be_one() -> None:
    hub = MemoryHub()
    hub.join(ANT)
    with pytest.raises(SwarmError, match="ant"):
        hub.join(ANT)
    with pytest.raises(UsageError, match="letters, digits"):
        hub.join(Author("a/b"))


def test_a_large_swarm_is_heard_in_part_and_fairly() -> None:
    """The simulation's nodes listen as real ones do: about as many groups as are wanted, from everyone."""
    hub = MemoryHub()
    swarms = [hub.join(Author(f"n{place}")) for place in range(200)]
    heard: dict[Author, int] = {}
    for _ in range(60):
        for place, swarm in enumerate(swarms):
            for index in range(4):
                swarm.publish(group(Author(f"n{place}"), index))
        for swarm in swarms:
            arrived = swarm.drain(40.0)
            if swarm is swarms[0]:
                heard.update({g.author: heard.get(g.author, 0) + 1 for g in arrived})
    assert swarms[0].traffic().listening < 0.1
    assert len(heard) > 190
