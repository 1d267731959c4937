"""`waggle bench swarm` measures what it says, with real nodes."""

from waggledance.bench.aha import DIFFICULTY_SPREAD, LEARNING_RATE, UNABLE, measure_aha
from waggledance.bench.pupil import Pupil, Skill, solves
from waggledance.bench.simulated import SimulatedSwarm


def test_an_aha_spreads_and_a_swarm_without_one_learns_nothing() -> None:
    told: list[str] = []
    [result] = measure_aha([8], [1], 60, told.append)
    assert result.rounds_to_half is not None
    assert result.rounds_to_nine_tenths is not None
    assert 2 <= result.rounds_to_half <= result.rounds_to_nine_tenths < 100
    assert "8 nodes" in told[0]
    skill = Skill(8, DIFFICULTY_SPREAD)
    pupils = [Pupil(skill, UNABLE, LEARNING_RATE) for _ in range(8)]
    swarm = SimulatedSwarm(pupils, skill, seed=1, completions=8, round_s=10)
    for _ in range(result.rounds_to_nine_tenths):
        swarm.round()
    assert not any(map(solves, pupils))
