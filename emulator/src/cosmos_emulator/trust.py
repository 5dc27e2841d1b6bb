"""How the client of each language takes the certificate that the emulator made itself."""

from typing import Final

_ADVICE: Final = """\
The emulator hands out its certificate (without --data it makes a new one at each start):

    curl --insecure {url}_explorer/emulator.pem --output emulator.crt

SSL_CERT_FILE stands in the place of all other authorities, on Linux.

Python   its client does not check it at localhost and 127.0.0.1; elsewhere, sync and async:
         REQUESTS_CA_BUNDLE=emulator.crt SSL_CERT_FILE=emulator.crt python app.py

Node     NODE_EXTRA_CA_CERTS=emulator.crt node app.js

Java     keytool -importcert -noprompt -alias emulator -file emulator.crt \\
                 -keystore emulator.jks -storepass changeit
         java -Djavax.net.ssl.trustStore=emulator.jks \\
              -Djavax.net.ssl.trustStorePassword=changeit ...

Go       SSL_CERT_FILE=emulator.crt go run .

Rust     SSL_CERT_FILE=emulator.crt cargo run

.NET     SSL_CERT_FILE=emulator.crt dotnet run
         in code: new CosmosClientOptions {{ ConnectionMode = ConnectionMode.Gateway }}
"""


def advice_on_trust(url: str) -> str:
    """Return the advice for an emulator at a URL; it ends in one slash."""
    return _ADVICE.format(url=url.rstrip("/") + "/")
