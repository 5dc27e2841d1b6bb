"""How a broker writes, reads and watches. One frozen object; times in seconds."""

from dataclasses import dataclass
from math import inf

from changefeed.log.format.flush import MAX_IN_FLIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSettings:
    """See ``log.brokers.core.BrokerCore``.

    ``puts``              objects in a second, if they are not full; 20 may be saved up
    ``flush_bytes``       an object that has so many is full
    ``in_flight``         objects under way at once
    ``buffer_bytes``      what requests may take that are being read, and what may wait to be
                          written; beyond, producers are asked to come again
    ``cache_bytes``       objects kept in memory for reads
    ``heartbeat``         between two signs of life
    ``expiration``        without a sign of life a broker counts as dead
    ``settle``            membership must stand still for so long before an era ends
    ``catalog_interval``  between two looks for a newer catalog
    ``seal_patience``     how long living brokers may take to seal, once an era is ending
    ``retry_delay``       before the store is asked again; doubled up to ``max_retry_delay``
    ``producer_memory``   a producer that is silent for longer is forgotten
    ``warm_bytes``        what a new home of a closed partition reads of it ahead
    ``compaction``        whether objects become runs; ``compaction_interval`` between looks
    ``compaction_bytes``, ``compaction_objects``  the newest era's: as soon as there are so many
    ``compaction_age``    and as soon as the oldest was written so long ago
    ``compaction_memory`` what one run of compaction holds of records at a time
    ``compactions_at_once``  rows that are compacted side by side
    ``retention_interval``, ``delete_grace``  between looks for what may be deleted, and
                          from the catalog that says so to the deletion
    """

    puts: float = inf
    flush_bytes: int = 4 * 1024 * 1024
    in_flight: int = 4
    buffer_bytes: int = 64 * 1024 * 1024
    cache_bytes: int = 256 * 1024 * 1024
    heartbeat: float = 1.0
    expiration: float = 10.0
    settle: float = 0.5
    catalog_interval: float = 0.25
    seal_patience: float = 3.0
    retry_delay: float = 0.1
    max_retry_delay: float = 2.0
    producer_memory: float = 3600.0
    warm_bytes: int = 8 * 1024 * 1024
    compaction: bool = True
    compaction_interval: float = 10.0
    compaction_bytes: int = 64 * 1024 * 1024
    compaction_objects: int = 4096
    compaction_age: float = 3600.0
    compaction_memory: int = 64 * 1024 * 1024
    compactions_at_once: int = 2
    retention_interval: float = 30.0
    delete_grace: float = 60.0

    def __post_init__(self) -> None:
        if not 1 <= self.in_flight <= MAX_IN_FLIGHT:
            raise ValueError(f"in_flight is 1 to {MAX_IN_FLIGHT}, not {self.in_flight}")
        if self.expiration < 3 * self.heartbeat:
            raise ValueError("expiration must be three heartbeats at least")
