"""Foundings: a swarm's secrets on disk, what rotating ends, and two who found one at once."""

import stat
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

import pytest

from waggledance.errors import MissingError, StorageError, UsageError
from waggledance.swarm.founding import Founding, alone, cut, found, keep, kept, kept_or_new, reaching, rotated
from waggledance.swarm.ticket import ROUTERS_LIMIT, Role, links_of

NAMES_OF_NOTHING = ["", ".hidden", "../up", "a/b", "a b", "a\n", "é", "x" * 65]


def swarms(home: Path) -> Path:
    return home / "swarms"


def test_what_is_kept_is_found_again_and_its_owner_s_alone(tmp_path: Path) -> None:
    founding = reaching(found("lab"), lan=True, routers=("tls/192.0.2.7:7447",), authority="web")
    assert kept(tmp_path, "lab") is None
    keep(founding, tmp_path)
    assert kept(tmp_path, "lab") == founding
    [file] = swarms(tmp_path).iterdir()
    assert file.name == "lab.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_swarm_is_founded_once(tmp_path: Path) -> None:
    assert kept_or_new(tmp_path, "home") == kept_or_new(tmp_path, "home")
    assert kept_or_new(tmp_path, "home") != kept_or_new(tmp_path, "other")


def test_many_who_start_at_once_found_one_swarm(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as crowd:
        foundings = list(crowd.map(kept_or_new, repeat(tmp_path, 32), repeat("home")))
    assert len({founding.swarm for founding in foundings}) == 1


def test_who_is_alone_is_waited_for(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as crowd:
        with alone(tmp_path, "home"):
            other = crowd.submit(kept_or_new, tmp_path, "home")
            first = found("home")
            keep(first, tmp_path)
        assert other.result(10) == first


def test_rotating_draws_new_secrets_and_keeps_the_way_there() -> None:
    before = reaching(found("lab"), lan=True, routers=("tls/h:1",), authority="web")
    after = rotated(before)
    assert (after.name, after.lan, after.routers, after.authority) == ("lab", True, ("tls/h:1",), "web")
    assert before.swarm != after.swarm
    assert before.founder != after.founder
    assert before.secret != after.secret
    assert cut(before).links_key != cut(after).links_key, "an old ticket opens no link any more"
    assert rotated(found("square", is_open=True)).is_open


def test_secrets_are_drawn_anew_for_each() -> None:
    drawn = [found("lab") for _ in range(50)]
    for field in ("swarm", "founder", "secret"):
        assert len({getattr(founding, field) for founding in drawn}) == 50


def test_a_router_s_ticket_is_one_way_from_the_secret() -> None:
    founding = found("lab")
    assert cut(founding, Role.ROUTER).links == links_of(founding.secret) != founding.secret


@pytest.mark.parametrize("name", NAMES_OF_NOTHING)
def test_a_name_that_is_none_is_refused_before_anything_is_touched(name: str, tmp_path: Path) -> None:
    for refused in (kept, kept_or_new):
        with pytest.raises(UsageError, match="cannot name a swarm"):
            refused(tmp_path, name)
    with pytest.raises(UsageError, match="cannot name a swarm"):
        found(name)
    with pytest.raises(UsageError, match="cannot name a swarm"), alone(tmp_path, name):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[1]", b"\xff\xfe", b'{"name":"lab","secret":"\xff"}', b"[" * 100_000, b'{"name": 7}'],
    ids=lambda content: content[:16],
)
def test_a_damaged_file_is_one_line_that_says_what_to_do(content: bytes, tmp_path: Path) -> None:
    keep(found("lab"), tmp_path)
    file = swarms(tmp_path) / "lab.json"
    file.write_bytes(content)
    with pytest.raises(MissingError, match=r"holds no swarm's keys.*put the right file back") as caught:
        kept(tmp_path, "lab")
    assert "\n" not in str(caught.value)
    with pytest.raises(MissingError):
        kept_or_new(tmp_path, "lab")
    assert file.read_bytes() == content, "what may be mended is left"


def test_a_home_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for home in (file, Path("/proc/waggle"), tmp_path / ("long" * 100)):
        with pytest.raises(StorageError, match=str(home)):
            keep(found("lab"), home)
        with pytest.raises((StorageError, MissingError), match=str(home)):
            kept_or_new(home, "lab")
    with pytest.raises(UsageError, match="name a folder"):
        kept(Path("~nobody-of-this-name"), "lab")


def test_where_nothing_may_be_written_what_is_kept_can_be_read(tmp_path: Path) -> None:
    founding = kept_or_new(tmp_path, "lab")
    swarms(tmp_path).chmod(0o500)
    try:
        assert kept_or_new(tmp_path, "lab") == founding
        with alone(tmp_path, "lab"):
            assert kept(tmp_path, "lab") == founding
    finally:
        swarms(tmp_path).chmod(0o700)


def test_where_a_swarm_is_met_is_checked() -> None:
    def met(**changes: object) -> Founding:
        settings: dict[str, object] = {"lan": False, "routers": (), "authority": ""}
        return reaching(found("lab"), **(settings | changes))  # pyright: ignore[reportArgumentType]

    with pytest.raises(UsageError, match=f"{ROUTERS_LIMIT} at most"):
        met(routers=("tls/h:1",) * (ROUTERS_LIMIT + 1))
    with pytest.raises(UsageError, match="is no endpoint"):
        met(routers=("here",))
    with pytest.raises(UsageError, match="no router"):
        met(authority="web")
