"""Breaks of calls: together, and cancelled by whoever asks for it or by what they call."""

from .mutant import Mutant

_TOGETHER = "tests/unit/runtime/test_together.py"
_CANCELLATION = "tests/unit/runtime/test_cancellation.py"
_CLIENTS = "tests/unit/host/test_clients_that_cancel.py"

CALLS = (
    Mutant(
        name="one of several calls that fails leaves the others running",
        file="runtime/together.py",
        before="            task.cancel()\n"
        "        await asyncio.gather(*tasks, return_exceptions=True)\n",
        after="            del task\n",
        rule=0,
        tests=(_TOGETHER,),
    ),
    Mutant(
        name="one of several calls is not waited for when another has failed",
        file="runtime/together.py",
        before="        await asyncio.gather(*tasks, return_exceptions=True)\n",
        after="        del tasks\n",
        rule=0,
        tests=(_TOGETHER,),
    ),
    Mutant(
        name="a failure on the way hides that the caller was cancelled",
        file="runtime/together.py",
        before="await keep_cancellation(asyncio.gather(*tasks))",
        after="await asyncio.gather(*tasks)",
        rule=0,
        tests=(_TOGETHER,),
    ),
    Mutant(
        name="leases that are listed while hosts cannot be keep the container to themselves",
        file="leases/cosmos/container.py",
        before="await together(self.list(), self.members())",
        after='await __import__("asyncio").gather(self.list(), self.members())',
        rule=0,
        tests=("tests/unit/leases/cosmos/test_container.py",),
    ),
    Mutant(
        name="brokers are asked on when one has refused",
        file="feeds/brokers/ends.py",
        before="_joined(await together(",
        after="_joined(await asyncio.gather(",
        rule=0,
        tests=("tests/unit/feeds/brokers/test_ends.py",),
    ),
    Mutant(
        name="a call that its client cancels ends the task that makes it",
        file="runtime/cancellation.py",
        before="        if _current().cancelling() > before:\n            raise\n",
        after="        raise\n",
        rule=0,
        tests=(_CANCELLATION,),
    ),
    Mutant(
        name="a cancellation that was asked for is a failure of the call",
        file="runtime/cancellation.py",
        before="        if _current().cancelling() > before:\n            raise\n",
        after="",
        rule=0,
        tests=(_CANCELLATION,),
    ),
    Mutant(
        name="a lease container whose client cancels a call ends a host",
        file="leases/timeouts.py",
        before="        except CancelledByClient as error:\n",
        after="        except ZeroDivisionError as error:\n",
        rule=6,
        tests=(_CANCELLATION, _CLIENTS),
    ),
    Mutant(
        name="a feed whose client cancels a call ends a host",
        file="feeds/timeouts.py",
        before="    except CancelledByClient as error:\n",
        after="    except ZeroDivisionError as error:\n",
        rule=6,
        tests=(_CANCELLATION, _CLIENTS),
    ),
    Mutant(
        name="a host goes on without a task that was cancelled by what it calls",
        file="host/host.py",
        before="            with cancelled_on_request():\n                await work\n",
        after="            await work\n",
        rule=0,
        tests=(_CLIENTS,),
    ),
)
