# One image for every medevac process: `docker run medevac worker`, `... gateway`, `... setup`, `... doctor`.
# Nothing in it is secret, it runs as nobody, and it writes nowhere but to /tmp and /var/lib/medevac.
ARG PYTHON_IMAGE=python:3.13.16-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1
WORKDIR /build
COPY deploy/build.lock deploy/requirements.lock ./deploy/
RUN python -m venv /opt/medevac \
    && /opt/medevac/bin/pip install --require-hashes -r deploy/requirements.lock \
    && python -m venv /opt/backend \
    && /opt/backend/bin/pip install --require-hashes -r deploy/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY medevac medevac
COPY workflows workflows
COPY activities activities
COPY worker worker
COPY simulation simulation
RUN /opt/backend/bin/hatchling build -t wheel -d dist \
    && /opt/medevac/bin/pip install --no-deps dist/*.whl \
    && /opt/medevac/bin/python -m compileall -q /opt/medevac/lib

FROM ${PYTHON_IMAGE}
RUN groupadd --gid 65532 medevac \
    && useradd --uid 65532 --gid 65532 --home-dir /var/lib/medevac --create-home --shell /usr/sbin/nologin medevac
COPY --from=build /opt/medevac /opt/medevac
# PROBE_URL: what the health check asks. The worker answers there only while it really polls.
ENV PATH=/opt/medevac/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    MEDEVAC_DATA_DIR=/var/lib/medevac \
    PROBE_URL=http://127.0.0.1:8081/readyz
USER 65532:65532
WORKDIR /var/lib/medevac
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(os.environ['PROBE_URL'], timeout=4)"]
ENTRYPOINT ["medevac"]
CMD ["--help"]
