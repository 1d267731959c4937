"""Opening a mix by its settings."""

from waggledance.config import MixConfig
from waggledance.seams import Mix
from waggledance.sharing.corrected import Corrected
from waggledance.sharing.fixed import Fixed
from waggledance.sharing.need import Need
from waggledance.sharing.replay import Replay
from waggledance.sharing.rescue import Rescue


def open_mix(config: MixConfig) -> Mix:
    mix = _open(config)
    mix = Corrected(mix) if config.corrected else mix
    return Replay(mix, config.replay_rounds) if config.replay_rounds else mix


def _open(config: MixConfig) -> Mix:
    match config.kind:
        case "fixed":
            return Fixed(config.own, config.foreign)
        case "need":
            return Need(config.own, config.foreign)
        case "rescue":
            return Rescue(config.own, config.foreign)
