"""``changefeed emulator``: the command of the distribution cosmos-emulator."""

import typer

from changefeed.cli.exit_codes import exit_on_error
from changefeed.runtime.errors import UserError

app = typer.Typer(add_completion=False)


@app.command(
    "emulator",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def emulator(context: typer.Context) -> None:
    """Serve Azure Cosmos DB on this machine, to develop and to test against."""
    with exit_on_error():
        try:
            from cosmos_emulator.command import main  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise UserError(
                "the emulator is not installed: pip install 'changefeed-host[emulator]'"
            ) from error
        main(context.args, "changefeed emulator")
