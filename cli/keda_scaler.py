"""KEDA's external scaler: the number of hosts that a fleet should have, over gRPC.

It is KEDA's protocol ``externalscaler.ExternalScaler``. With a trigger of type ``external``
KEDA asks every ``pollingInterval``; with ``external-push`` it is told as soon as there is
something to do, which wakes a fleet that was scaled to zero within seconds.

The messages are described here, field by field, instead of in generated code: there are few,
and generated code fits only some versions of protobuf.

Limits: no TLS. It is for the network of a cluster, and can only be read.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from changefeed.fleet.watch import FleetWatch
from changefeed.runtime.errors import StoreError, UserError
from changefeed.runtime.web_server import descriptors, host_and_port, most_connections

METRIC = "desired_hosts"
_PACKAGE = "externalscaler"
_ANSWER_WITHIN = 2.5
_LOOK_EVERY = 5.0
_STOP_WITHIN = 2.0
_MOST = 64
_HANDSHAKE_WITHIN = 5
_IDLE = 60

_BOOL, _INT64, _DOUBLE, _TEXT = (
    FieldDescriptorProto.TYPE_BOOL,
    FieldDescriptorProto.TYPE_INT64,
    FieldDescriptorProto.TYPE_DOUBLE,
    FieldDescriptorProto.TYPE_STRING,
)
_FIELDS: dict[str, dict[str, int | str]] = {
    "ScaledObjectRef": {"name": _TEXT, "namespace": _TEXT, "scalerMetadata": "*Entry"},
    "IsActiveResponse": {"result": _BOOL},
    "GetMetricSpecResponse": {"metricSpecs": "*MetricSpec"},
    "MetricSpec": {"metricName": _TEXT, "targetSize": _INT64, "targetSizeFloat": _DOUBLE},
    "GetMetricsRequest": {"scaledObjectRef": "ScaledObjectRef", "metricName": _TEXT},
    "GetMetricsResponse": {"metricValues": "*MetricValue"},
    "MetricValue": {"metricName": _TEXT, "metricValue": _INT64, "metricValueFloat": _DOUBLE},
    "Entry": {"key": _TEXT, "value": _TEXT},
}
"""The fields of each message in their order, which numbers them; ``*`` is for repeated ones. A
map is a repeated message of keys and values.
"""


def _messages() -> dict[str, Any]:
    file = FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3")
    for message, fields in _FIELDS.items():
        described = file.message_type.add(name=message)
        for number, (name, kind) in enumerate(fields.items(), start=1):
            repeated = isinstance(kind, str) and kind.startswith("*")
            field = described.field.add(
                name=name,
                number=number,
                label=FieldDescriptorProto.LABEL_REPEATED
                if repeated
                else FieldDescriptorProto.LABEL_OPTIONAL,
            )
            if isinstance(kind, str):
                field.type = FieldDescriptorProto.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{kind.removeprefix('*')}"
            else:
                field.type = kind
    pool = DescriptorPool()
    pool.Add(file)
    return {x: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{x}")) for x in _FIELDS}


MESSAGES = _messages()
"""The classes of the messages by their names."""


class Scaler:
    """Answers for one fleet. ``lag_per_host`` holds unless a trigger's metadata have
    ``lagPerHost``.
    """

    def __init__(self, watch: FleetWatch, lag_per_host: int) -> None:
        self._watch = watch
        self._lag_per_host = lag_per_host

    async def is_active(self, request: Any, context: Any) -> Any:
        """Whether there should be any host."""
        desired = await self._desired(request, context)
        return MESSAGES["IsActiveResponse"](result=desired > 0)

    async def stream_is_active(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Say it at once, and whenever it changes. A look that fails is no change."""
        said: bool | None = None
        active: bool | None = None
        while True:
            try:
                active = await self._look(self._lag_of(request)) > 0
            except StoreError:
                active = said
            except ValueError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            if active is not None and active != said:
                said = active
                yield MESSAGES["IsActiveResponse"](result=active)
            await asyncio.sleep(_LOOK_EVERY)

    async def get_metric_spec(self, request: Any, _context: Any) -> Any:
        """One for each host: KEDA has the autoscaler divide what there is by this."""
        del request
        spec = MESSAGES["MetricSpec"](metricName=METRIC, targetSize=1, targetSizeFloat=1.0)
        return MESSAGES["GetMetricSpecResponse"](metricSpecs=[spec])

    async def get_metrics(self, request: Any, context: Any) -> Any:
        desired = await self._desired(request.scaledObjectRef, context)
        value = MESSAGES["MetricValue"](
            metricName=request.metricName or METRIC,
            metricValue=desired,
            metricValueFloat=float(desired),
        )
        return MESSAGES["GetMetricsResponse"](metricValues=[value])

    async def _desired(self, reference: Any, context: Any) -> int:
        try:
            return await self._look(self._lag_of(reference))
        except StoreError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        raise AssertionError("abort raises")

    async def _look(self, lag_per_host: int) -> int:
        seen = await self._watch.look(within=_ANSWER_WITHIN)
        return seen.desired_hosts(lag_per_host)

    def _lag_of(self, reference: Any) -> int:
        for entry in reference.scalerMetadata:
            if entry.key == "lagPerHost":
                if not (entry.value.isascii() and entry.value.isdecimal() and int(entry.value)):
                    raise ValueError(
                        f"lagPerHost is a number of changes from 1 on, and not {entry.value!r}"
                    )
                return int(entry.value)
        return self._lag_per_host


@asynccontextmanager
async def serving_scaler(scaler: Scaler, bind: str, port: int) -> AsyncIterator[int]:
    """Serve it until the block is left; yield the port, which 0 leaves to chance."""
    server = grpc.aio.server(options=_options())
    server.add_generic_rpc_handlers((_handlers(scaler),))
    where = host_and_port(bind, port)
    try:
        taken = server.add_insecure_port(where)
    except RuntimeError as error:
        raise UserError(
            f"cannot listen for KEDA at {where}: choose another --scaler-port"
        ) from error
    await server.start()
    try:
        yield taken
    finally:
        await server.stop(_STOP_WITHIN)


def _options() -> list[tuple[str, int]]:
    """Let strangers who connect, and say nothing, take neither all descriptors nor the port."""
    return [
        # Else another process could take the same port, and KEDA would ask either.
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", most_connections(_MOST, descriptors())),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_WITHIN * 1000),
        ("grpc.max_connection_idle_ms", _IDLE * 1000),
    ]


def _handlers(scaler: Scaler) -> Any:
    def parse(name: str) -> Any:
        return MESSAGES[name].FromString

    def write(message: Any) -> bytes:
        written: bytes = message.SerializeToString()
        return written

    reference = parse("ScaledObjectRef")
    unary = grpc.unary_unary_rpc_method_handler
    return grpc.method_handlers_generic_handler(
        f"{_PACKAGE}.ExternalScaler",
        {
            "IsActive": unary(scaler.is_active, reference, write),
            "StreamIsActive": grpc.unary_stream_rpc_method_handler(
                scaler.stream_is_active, reference, write
            ),
            "GetMetricSpec": unary(scaler.get_metric_spec, reference, write),
            "GetMetrics": unary(scaler.get_metrics, parse("GetMetricsRequest"), write),
        },
    )
