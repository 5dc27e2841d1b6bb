"""``/_explorer``: the certificate."""

from aiohttp import web

from cosmos_emulator.errors import CosmosError
from cosmos_emulator.visitors import EXPLORER, refused


def add_explorer(router: web.UrlDispatcher, certificate: str | None) -> None:
    """Serve the certificate under the path that Microsoft's emulators have."""

    async def hand_out(_: web.Request) -> web.Response:
        if certificate is None:
            return refused(CosmosError(404, "There is no certificate: start with --tls."))
        return web.Response(text=certificate, content_type="application/x-pem-file")

    router.add_get(f"{EXPLORER}/emulator.pem", hand_out)
