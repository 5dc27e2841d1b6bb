# A host in a container: docs/kubernetes.md. Two stages: what builds stays behind.

# Pin it to what you have looked at: --build-arg PYTHON_IMAGE=python:3.13-slim@sha256:...
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
ENV UV_PYTHON_DOWNLOADS=never
WORKDIR /src
COPY requirements.txt pyproject.toml README.md LICENSE ./
RUN pip install --no-cache-dir "uv==$(sed -n 's/^uv==\([^ ;]*\).*/\1/p' requirements.txt)"
COPY changefeed changefeed
COPY cli cli
COPY feeds feeds
COPY fleet fleet
COPY host host
COPY leases leases
COPY log log
COPY stores stores
COPY observers observers
COPY pipeline pipeline
COPY runtime runtime
# The versions, and the hashes, are those of requirements.txt: what the project is tested with.
# What was installed is written down beside it, as a bill of materials in CycloneDX's form.
RUN uv build --wheel --build-constraints requirements.txt --out-dir /dist . \
    && uv venv /opt/changefeed \
    && uv pip install --python /opt/changefeed/bin/python --constraints requirements.txt \
        --compile-bytecode "changefeed-host[azure,blob,brokers,otlp,postgres,redis] @ file://$(ls /dist/*.whl)" \
    && uv tool run --from cyclonedx-bom==7.5.0 cyclonedx-py environment \
        --output-reproducible --output-file /opt/changefeed/sbom.cdx.json /opt/changefeed/bin/python

FROM ${PYTHON_IMAGE}
ARG PYTHON_IMAGE
ARG REVISION=unknown
LABEL org.opencontainers.image.title="changefeed-host" \
      org.opencontainers.image.description="A change feed processor: hosts share the ranges of a feed through leases" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}" \
      org.opencontainers.image.licenses="MIT"
COPY --from=build /opt/changefeed /opt/changefeed
ENV PATH=/opt/changefeed/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    CHANGEFEED_WEB__BIND=0.0.0.0 \
    CHANGEFEED_WEB__PORT=8080 \
    CHANGEFEED_BROKER__WEB__BIND=0.0.0.0
# Nothing is installed into an image that runs: no pip, nor what would bring it back.
RUN /usr/local/bin/python -m pip uninstall --quiet --yes --root-user-action=ignore pip \
    && rm -r /usr/local/lib/python3.*/ensurepip
RUN useradd --uid 10001 --create-home changefeed
RUN install -d -o 10001 -g 10001 /data
USER 10001
# The defaults of settings, data/log and data/leases.db, then lie in the directory /data.
WORKDIR /
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['CHANGEFEED_WEB__PORT'] + '/livez', timeout=4)"]
# No shell between: SIGTERM reaches the host itself, which then releases its leases.
ENTRYPOINT ["changefeed"]
CMD ["--help"]
