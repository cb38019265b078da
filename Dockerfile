# The worker as a container image.
#
#   docker build -t worker .
#
# Add your handlers in one of two ways, and name the function in WORKER_HANDLER=package.module:function:
#
#   docker run -v "$PWD/handlers:/app:ro" … worker        your code instead of the examples in /app
#
#   FROM worker                                           an image of your own, with further packages
#   USER 0
#   RUN pip install --no-cache-dir numpy                  (lands in /opt/venv: see PIP_PYTHON below)
#   USER 10001:10001
#   COPY handlers/ /app/
#
# In closed networks, pass pip's settings as build arguments or in a mounted file. They stay out of the image:
#
#   docker build --build-arg PIP_INDEX_URL=… .
#   docker build --secret id=pip.conf,src=pip.conf --secret id=ca.pem,src=ca.pem \
#                --build-arg PIP_CERT=/run/secrets/ca.pem .
#
# If the address contains a password, use the secret: build arguments can be read from the builder's cache.

ARG BASE_IMAGE=python:3.12-slim

# ---------------------------------------------------------------- builder: thrown away, with everything it was told
FROM ${BASE_IMAGE} AS builder

# Read by pip from the environment while this stage runs. Declared without a value: not given means not set.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_NO_INDEX
ARG PIP_TRUSTED_HOST
ARG PIP_CERT
ARG PIP_PROXY
ARG PIP_DEFAULT_TIMEOUT
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_NO_CACHE_DIR=1

# Extras of pyproject.toml, comma-separated: `--build-arg EXTRAS=examples` for what examples/train.py needs.
ARG EXTRAS=

# Two environments: the first has pip, the second goes into the image and needs none.
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/venv

WORKDIR /src

# Dependencies first, with no package yet beside pyproject.toml: this layer is built again only when one of these
# files changes. The lock file knows more than is wanted here (tests, Spark): it only says which versions.
COPY pyproject.toml requirements.lock LICENSE ./
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.pem,target=/run/secrets/ca.pem \
    /opt/build/bin/pip --python /opt/venv/bin/python install --constraint requirements.lock ".${EXTRAS:+[$EXTRAS]}"

COPY . .
# The root file system is read-only at run time: what is not compiled now would be compiled at every start.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.pem,target=/run/secrets/ca.pem \
    /opt/build/bin/pip --python /opt/venv/bin/python install --no-deps --force-reinstall . && \
    cp config/healthcheck.py /opt/venv/ && \
    mkdir /app && cp -R examples /app/ && \
    python3 -m compileall -q /app /opt/venv

# ---------------------------------------------------------------- the image: nothing runs here, so the base may be bare
FROM ${BASE_IMAGE}

ARG VERSION=0
ARG REVISION=
LABEL org.opencontainers.image.title="worker" \
      org.opencontainers.image.description="A Kafka worker for CPU-bound tasks of unknown length" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

COPY --from=builder /opt/venv /opt/venv
COPY --from=builder /app /app

# PYTHONSAFEPATH: `python -m worker` does not search the working directory first, so a worker.py in /app hides nothing.
# PIP_PYTHON: in an image built FROM this one, the base's pip installs where the worker looks.
# HOME, USER: the uid has no entry in /etc/passwd; libraries that ask get an answer, and a writable place.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONSAFEPATH=1 \
    PIP_PYTHON=/opt/venv/bin/python \
    HOME=/tmp \
    USER=worker

# Needs no writable root (`--read-only`): the worker writes to /dev/shm only (the shared memory between its
# processes), handlers may use /tmp. Give both as tmpfs where the runtime does not.
WORKDIR /app

# A number, so that Kubernetes can check runAsNonRoot without the image's passwd file.
USER 10001:10001

EXPOSE 8080

# This checks only that the supervisor runs, not that Kafka is available: a restart would not repair a broker.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python3", "-I", "/opt/venv/healthcheck.py"]

# Use no shell and no init: the supervisor is PID 1, receives the signals and reaps orphans.
STOPSIGNAL SIGTERM
ENTRYPOINT ["worker"]
CMD ["run"]
