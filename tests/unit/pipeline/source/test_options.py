"""What options may say of credentials, and how Spark and we keep them to ourselves."""

import pickle
import re
from collections.abc import Mapping

import pytest
from pyspark import cloudpickle

from changefeed.feeds.cosmos.address import SECRETS, CosmosAccess
from changefeed.pipeline.source.options import CREDENTIALS, Options
from changefeed.runtime.errors import UserError
from changefeed.runtime.secret import Secret

FEED = {"feed": "cosmos://acc.example/d/c"}
HIDDEN_BY_SPARK = re.compile("(?i)secret|password|token|access[.]?key")
"""The default of ``spark.redaction.regex``, in Spark 4.0 to 4.3."""


def test_spark_hides_each_option_that_is_a_secret() -> None:
    secret = {name for name, field in CREDENTIALS.items() if field in SECRETS}
    assert len(secret) == len(SECRETS)
    assert {x for x in CREDENTIALS if HIDDEN_BY_SPARK.search(x)} == secret


def test_credentials_reach_executors_and_are_not_shown() -> None:
    found = Options.of({**FEED, "clientsecret": "s3cr3t", "tenantId": "t", "CLIENTID": "c"})
    expected = CosmosAccess(tenant_id="t", client_id="c", client_secret=Secret.of("s3cr3t"))
    there = pickle.loads(cloudpickle.dumps(found))  # type: ignore[no-untyped-call]
    assert (found.cosmos, there.cosmos) == (expected, expected)
    assert "s3cr3t" not in repr(found) + repr(there)
    assert Options.of(FEED).cosmos is None, "the environment of each process says it"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"accessKey": "s3cr3t", "token": "s3cr3t"}, "accessKey and token"),
        ({"clientSecret": "s3cr3t"}, "tenantId"),
        ({"feed": "eventlog:/log", "accessKey": "s3cr3t"}, "accessKey"),
    ],
)
def test_credentials_that_open_nothing_are_refused_and_not_repeated(
    given: Mapping[str, str], named: str
) -> None:
    with pytest.raises(UserError, match=named) as refused:
        Options.of({**FEED, **given})
    assert "s3cr3t" not in str(refused.value)
