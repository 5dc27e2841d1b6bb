"""All mutants, part by part. A new one is one more entry in the list of its part."""

from .of_brokers import BROKERS
from .of_calls import CALLS
from .of_commands import COMMANDS
from .of_compaction import COMPACTION
from .of_emulator import EMULATOR
from .of_feeds import FEEDS
from .of_fleet import FLEET
from .of_guards import GUARDS
from .of_health import HEALTH
from .of_holding import HOLDING
from .of_homes import HOMES
from .of_hot_ranges import HOT_RANGES
from .of_idle import IDLE
from .of_leases import LEASES
from .of_lifecycle import LIFECYCLE
from .of_load import LOAD
from .of_observers import OBSERVERS
from .of_page import PAGE
from .of_parts import PARTS
from .of_pipeline import PIPELINE
from .of_planning import PLANNING
from .of_signals import SIGNALS
from .of_stops import STOPS
from .of_stores import STORES
from .of_troubles import TROUBLES

MUTANTS = (
    *HOLDING,
    *HEALTH,
    *FLEET,
    *LEASES,
    *OBSERVERS,
    *FEEDS,
    *PLANNING,
    *IDLE,
    *LOAD,
    *PIPELINE,
    *LIFECYCLE,
    *EMULATOR,
    *GUARDS,
    *STORES,
    *SIGNALS,
    *BROKERS,
    *COMPACTION,
    *HOMES,
    *PAGE,
    *PARTS,
    *HOT_RANGES,
    *CALLS,
    *STOPS,
    *COMMANDS,
    *TROUBLES,
)
