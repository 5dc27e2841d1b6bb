"""Whether the records of a store can be written, as ``changefeed doctor`` shows it."""

from uuid import uuid4

from changefeed.runtime.diagnostics import Diagnostic, fine, problem
from changefeed.runtime.errors import StoreRefused
from changefeed.stores.store import Record, Store


async def check_rights(store: Store) -> Diagnostic:
    """Insert a record, write it again, and delete it: each takes rights of its own."""
    probe = Record(kind="check", key=uuid4().hex, body=b"{}")
    try:
        written = await store.put(probe)
        assert written is None or written.version, f"{written} was written without a version"
        changed = None if written is None else await store.put(written)
        done = changed and await store.delete(probe.kind, probe.key, changed.version)
    except StoreRefused as error:
        return problem("rights", str(error))
    if not done:
        return problem(
            "rights",
            "a record that was written could not be changed and deleted under its version",
            "check the address: another server answers, or something changes what is sent",
        )
    return fine("rights", "records can be created, changed and deleted")
