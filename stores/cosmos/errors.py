"""What Cosmos DB refuses or fails to do, in the errors of lease containers.

What may pass is ``StoreUnavailable``: a write may have happened. What a person has to
change is ``StoreRefused``, with advice.
"""

from changefeed.feeds.cosmos.errors import Translator
from changefeed.runtime.errors import StoreMissing, StoreRefused, StoreUnavailable

OF_STORES = Translator(
    unavailable=StoreUnavailable,
    refused=StoreRefused,
    missing=StoreMissing,
    advice={
        400: "the request was refused; is this endpoint a Cosmos DB for NoSQL?",
        401: "the key is wrong, or the clock of this machine: check CHANGEFEED_COSMOS__KEY",
        403: "this identity may not do that: give it the role 'Cosmos DB Built-in Data "
        "Contributor' on the account, and look at the account's firewall. Databases and "
        "containers can be created with a key only",
        404: "there is no such database or container: check the names, or let a host "
        "create the container (of leases with --set=leases.create=true)",
    },
)
