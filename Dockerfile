# A host in a container: docs/containers.md. Two stages: what builds stays behind.

ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
WORKDIR /src
COPY requirements.txt pyproject.toml README.md LICENSE ./
RUN pip install --no-cache-dir "uv==$(sed -n 's/^uv==\([^ ;]*\).*/\1/p' requirements.txt)"
COPY changefeed changefeed
COPY brokers brokers
COPY cli cli
COPY emulator emulator
COPY feeds feeds
COPY host host
COPY leases leases
COPY observers observers
COPY pipeline pipeline
COPY runtime runtime
# The versions, and the hashes, are those of requirements.txt: what the project is tested with.
RUN uv build --wheel --build-constraints requirements.txt --out-dir /dist . \
    && uv venv --seed /opt/changefeed \
    && uv pip install --python /opt/changefeed/bin/python --constraints requirements.txt \
        --compile-bytecode "changefeed-host[azure,blob,keda,otlp,postgres,redis] @ file://$(ls /dist/*.whl)"

FROM python:${PYTHON}-slim
LABEL org.opencontainers.image.title="changefeed-host" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="MIT"
COPY --from=build /opt/changefeed /opt/changefeed
ENV PATH=/opt/changefeed/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    CHANGEFEED_WEB__BIND=0.0.0.0 \
    CHANGEFEED_WEB__PORT=8080
RUN useradd --uid 10001 --create-home changefeed && install -d -o changefeed -g changefeed /data
USER 10001
# The defaults of settings, data/log and data/leases.db, then lie in the directory /data.
WORKDIR /
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['CHANGEFEED_WEB__PORT'] + '/livez', timeout=4)"]
# No shell between: SIGTERM reaches the host itself, which then releases its leases.
ENTRYPOINT ["changefeed"]
CMD ["--help"]
