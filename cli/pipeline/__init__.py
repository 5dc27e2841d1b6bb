"""``changefeed pipeline``: the feed of hosts, on Spark. Each command is a module.

Spark is imported by the commands that need it, and only once it is known to be wanted.
"""

import typer

from changefeed.cli.pipeline.queries import observe, run
from changefeed.cli.pipeline.status import status

app = typer.Typer(
    name="pipeline",
    help="Keep tables of a feed with Spark: every change, the latest state, figures.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("run")(run)
app.command("observe")(observe)
app.command("status")(status)
