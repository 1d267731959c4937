"""Opening a mix by its settings."""

from waggledance.config import MixConfig
from waggledance.seams import Mix
from waggledance.sharing.fixed import Fixed


def open_mix(config: MixConfig) -> Mix:
    match config.kind:
        case "fixed":
            return Fixed(config.own, config.foreign)
