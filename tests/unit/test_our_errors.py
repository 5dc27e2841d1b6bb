"""Each of our errors, as one process may hand it to another."""

import pickle
from types import ModuleType

import pytest

from changefeed.feeds import errors as of_feeds
from changefeed.leases import errors as of_leases
from changefeed.observers import errors as of_observers
from changefeed.runtime import errors as of_runtime
from tests.support.our_errors import OUR_ERRORS


@pytest.mark.parametrize("module", [of_feeds, of_leases, of_observers, of_runtime])
def test_no_error_of_ours_is_missing_here(module: ModuleType) -> None:
    there_are = (x for x in vars(module).values() if isinstance(x, type))
    assert {x for x in there_are if issubclass(x, Exception)} <= {type(x) for x in OUR_ERRORS}


@pytest.mark.parametrize("error", OUR_ERRORS, ids=lambda x: type(x).__name__)
def test_errors_survive_the_trip_between_processes(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
