"""What a node guards itself with: the gate and the ledger that settings and swarm ask for."""

from pathlib import Path

import pytest

from test_ledger import gives
from waggledance.cli.guarding import LEDGER, LedgerFile, gate_for, open_ledger, prefers_useful
from waggledance.config import GateConfig, MixConfig, NodeConfig, PoolConfig
from waggledance.errors import UsageError
from waggledance.rollout import Author
from waggledance.sharing.gate import GuardedGate, OpenGate

ANT = Author("ant")
GUARDED = NodeConfig(gate=GateConfig(kind="guarded"))


def test_the_gate_is_guarded_in_open_swarms_and_where_it_is_asked_for() -> None:
    assert isinstance(gate_for(NodeConfig(), None, is_open=True), GuardedGate)
    assert isinstance(gate_for(NodeConfig(), None, is_open=False), OpenGate)
    assert isinstance(gate_for(GUARDED, None, is_open=False), GuardedGate)


def test_the_useful_come_first_in_open_swarms_and_where_it_is_asked_for() -> None:
    assert prefers_useful(NodeConfig(), is_open=True)
    assert not prefers_useful(NodeConfig(), is_open=False)
    assert prefers_useful(NodeConfig(pool=PoolConfig(prefer="useful")), is_open=False)


def test_an_open_swarm_is_not_trained_with_unguarded() -> None:
    with pytest.raises(UsageError, match=r"gate\.kind = 'open'"):
        gate_for(NodeConfig(gate=GateConfig(kind="open")), None, is_open=True)
    with pytest.raises(UsageError, match=r"pool\.prefer = 'nobody'"):
        prefers_useful(NodeConfig(pool=PoolConfig(prefer="nobody")), is_open=True)


def test_a_gate_without_own_text_has_nothing_to_measure_by() -> None:
    with pytest.raises(UsageError, match=r"mix\.own = 0"):
        gate_for(NodeConfig(mix=MixConfig(own=0), gate=GateConfig(kind="guarded")), None, is_open=False)


def test_the_ledger_outlives_its_process_and_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path, is_open=True)
    file = LedgerFile(tmp_path, ledger)
    gives(ledger, ANT, 3, 1, 0)
    file.write()
    gives(ledger, ANT, 3, 1, 0, first=4)
    file.write()
    assert open_ledger(tmp_path, is_open=True)[ANT].given == 3, "it is written every few seconds at most"
    file.write(at_once=True)
    assert open_ledger(tmp_path, is_open=True)[ANT] == ledger[ANT]
    assert [path.name for path in tmp_path.iterdir()] == [LEDGER]


def test_a_ledger_that_cannot_be_read_counts_as_empty_and_one_that_cannot_be_written_stops_nobody(
    tmp_path: Path,
) -> None:
    (tmp_path / LEDGER).write_bytes(b"\xff not a ledger")
    assert len(open_ledger(tmp_path, is_open=False)) == 0
    LedgerFile(tmp_path / "gone", open_ledger(tmp_path, is_open=False)).write(at_once=True)
