"""``changefeed pipeline init-config``: a file with all settings, each with what it does."""

from pathlib import Path
from typing import Annotated, Final

import typer

from changefeed.cli.config_file import write_config
from changefeed.cli.exit_codes import exit_on_error

CONFIG: Final = """\
# All settings of a pipeline. A line that begins with # and a name is a setting with its
# default: take away the # to set it. Times are in seconds. What stands here gives way to the
# environment (CHANGEFEED_PIPELINE__LATEST__INTERVAL=60), and both give way to the command line.

# eventlog:DIRECTORY or cosmos://HOST/DATABASE/CONTAINER
feed = "eventlog:data/log"
# One folder for each table, and _checkpoints.
directory = "data/tables"
# Where what has no checkpoint starts: beginning, now, or a time with its zone.
#start = "beginning"
# The columns of bodies, as in "kind STRING, total DOUBLE"; without it they are JSON text.
#body_schema =
# How many changes a batch has at the most.
#max_changes = 500000
# How long a stop waits for the batches that run.
#stop_timeout = 25.0
# Where Spark runs; of no account for what was submitted.
#master = "local[2,4]"

# The table of every change.
[changes]
#enabled = true
# delta, or parquet, which only Spark can read safely.
#format = "delta"
#interval = 5.0
# After so many batches small files are put together, and files that are no part of the
# table any more are removed once they are so old; the same holds for the other tables.
#compact_every = 200
#keep_hours = 168

# The latest state by key and id. A merge writes every file again in which a row changes.
[latest]
#enabled = true
#interval = 30.0
#compact_every = 50
#keep_hours = 168

# Counts and sums by window, in tables of their own: any number of these.
#[[aggregates]]
#name = "hourly"
#window = "1 hour"
#watermark = "2 hours"
#by = { kind = "value.kind" }
#sums = { total = "value.total" }
#where = "operation <> 'delete'"
#interval = 30.0
#compact_every = 50
#keep_hours = 168

# What `changefeed pipeline observe` runs on executors; the names are those of the host.
[observer]
# module:Class, a registered name, or an entry point (log, jsonl, count).
#name =
#options = {}
# How many keys of one range to handle at once, each in order.
#concurrency = 1
# How long the observer may take for one call before the attempt counts as failed.
#timeout =
# When the attempts are used up: open the observer anew after reopen_delay (retry); find
# the change it fails on, put that aside and go on (dead-letter); or end (stop).
#on_failure = "retry"
#reopen_delay = 30.0
# sqlite:FILE or jsonl:FILE, where the tasks run.
#dead_letters = "sqlite:dead-letters.db"
# The least time from one batch to the next.
#interval = 0.0

[observer.retry]
#first_delay = 0.5
#max_delay = 60.0
#multiplier = 2.0
#attempts = 10
#jitter = 0.5

# Liveness, readiness and metrics over HTTP, if a port is named; 0 takes any free one.
[web]
#bind = "127.0.0.1"
#port =

[log]
# debug, info, warning, error
#level = "info"
# auto: for people on a terminal, JSON elsewhere.
#format = "auto"

# Any setting of Spark, as in "spark.driver.memory" = "4g".
[spark]
"""


def init_config(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("pipeline.toml"),
    *,
    force: Annotated[bool, typer.Option("--force", help="Overwrite it.")] = False,
) -> None:
    """Write a file with all settings and their defaults, for --config."""
    with exit_on_error():
        write_config(file, CONFIG, force=force)
