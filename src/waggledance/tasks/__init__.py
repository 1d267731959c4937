"""Where questions come from: sources of tasks, by index. `open_sources` opens them by name."""

from waggledance.tasks.arithmetic import Arithmetic
from waggledance.tasks.gym import Gym
from waggledance.tasks.jsonl import Jsonl
from waggledance.tasks.sets import SETS, open_sources

__all__ = ["SETS", "Arithmetic", "Gym", "Jsonl", "open_sources"]
