"""What stores with a password have in common: where that is set."""

from pydantic import SecretStr

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.secret import Secret
from changefeed.runtime.secret_settings import HasSecrets


class PasswordSettings(HasSecrets):
    """Better set in the environment than written into a file."""

    password: SecretStr | None = None


def password_of(options: OpenOptions) -> Secret | None:
    """Return it, as it is by now; ``None`` where the client looks where it always does."""
    settings = options.settings
    return settings.secret_of("password") if isinstance(settings, PasswordSettings) else None
