"""Each of our errors, as one process may hand it to another."""

import pickle
from types import ModuleType

import pytest

import changefeed.feeds.errors
import changefeed.leases.errors
import changefeed.observers.errors
import changefeed.runtime.errors
from tests.support.our_errors import OUR_ERRORS

MODULES = [
    changefeed.feeds.errors,
    changefeed.leases.errors,
    changefeed.observers.errors,
    changefeed.runtime.errors,
]


@pytest.mark.parametrize("module", MODULES)
def test_no_error_of_ours_is_missing_here(module: ModuleType) -> None:
    there_are = {x for x in vars(module).values() if isinstance(x, type)}
    errors = {x for x in there_are if issubclass(x, Exception)}
    assert errors <= {type(x) for x in OUR_ERRORS}


@pytest.mark.parametrize("error", OUR_ERRORS, ids=lambda x: type(x).__name__)
def test_errors_survive_the_trip_between_processes(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
