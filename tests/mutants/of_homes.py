"""Breaks of what people choose and are shown of a cluster: homes, and what is stored."""

from .mutant import Mutant

_MOVES = "tests/unit/brokers/test_moves.py"
_STORAGE = "tests/unit/brokers/test_storage.py"
_METERS = "tests/unit/brokers/test_meters.py"

HOMES = (
    Mutant(
        name="the home that people chose is forgotten",
        file="brokers/homes.py",
        before='            wanted = collection.chosen_homes.get(partition.id, "")\n',
        after='            wanted = ""\n',
        rule=0,
        tests=(_MOVES,),
    ),
    Mutant(
        name="a range stays at a chosen broker that is away",
        file="brokers/homes.py",
        before="            if wanted not in living:\n",
        after="            if not wanted:\n",
        rule=0,
        tests=(_MOVES,),
    ),
    Mutant(
        name="an open range is moved away from its writer",
        file="brokers/homes.py",
        before="    if range_id is not None and chosen[0].is_open:\n",
        after="    if range_id is not None and not chosen:\n",
        rule=0,
        tests=(_MOVES,),
    ),
    Mutant(
        name="open ranges are chosen with all others",
        file="brokers/homes.py",
        before="        homes |= {x.id: broker for x in chosen if not x.is_open}\n",
        after="        homes |= {x.id: broker for x in chosen}\n",
        rule=0,
        tests=(_MOVES,),
    ),
    Mutant(
        name="what retention has taken counts as stored",
        file="brokers/storage.py",
        before="        bytes=max(stored - partition.gone, 0),\n",
        after="        bytes=stored,\n",
        rule=0,
        tests=(_STORAGE,),
    ),
    Mutant(
        name="records of another collection count as this one's",
        file="brokers/storage.py",
        before="        if name == collection\n",
        after="",
        rule=0,
        tests=(_STORAGE,),
    ),
    Mutant(
        name="a producer that is silent is counted for ever",
        file="brokers/row_writer.py",
        before="for x, heard in self._heard.items() if heard >= before}",
        after="for x, heard in self._heard.items()}",
        rule=0,
        tests=(_METERS,),
    ),
    Mutant(
        name="a reader at the end counts as behind",
        file="brokers/core.py",
        before="found.blocks[-1].first + found.blocks[-1].count - 1 if found.blocks",
        after="after if found.blocks",
        rule=0,
        tests=(_METERS,),
    ),
    Mutant(
        name="one request that fails makes a broker not ready",
        file="brokers/run.py",
        before="if trouble is not None and trouble[0] >= _STORE_AWAY:\n",
        after="if trouble is not None:\n",
        rule=0,
        tests=(_METERS,),
    ),
    Mutant(
        name="a store that answers again is still away",
        file="brokers/metered_store.py",
        before="            raise\n        self._failing = None\n",
        after="            raise\n",
        rule=0,
        tests=(_METERS,),
    ),
)
