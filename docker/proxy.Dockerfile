# The proxy alone, for a Triton elsewhere: no torch, no weights. tokenizers is for adopted models.
#   docker build -f docker/proxy.Dockerfile -t triton-openai/proxy .
# It needs API_KEY or another source of keys (docs/access.md), or AUTH=off; with keys also TLS_CERT_FILE,
# FORWARDED_ALLOW_IPS, or PLAINTEXT=on (docs/access.md#tls). Run it with --read-only.
# PYTHON_DIGEST pins the base image (sha256:…); docs/security.md says where to get it.
ARG PYTHON_TAG=3.12-slim-bookworm
ARG PYTHON_DIGEST

FROM python:${PYTHON_TAG}${PYTHON_DIGEST:+@${PYTHON_DIGEST}} AS build
RUN python -m venv /venv
WORKDIR /build
COPY requirements.lock pyproject.toml ./
COPY docker/install.py docker/
RUN /venv/bin/python docker/install.py lock proxy \
    && /venv/bin/python -m pip check \
    && /venv/bin/python docker/install.py lock tokenizers \
    && /venv/bin/python -m pip uninstall --yes pip

FROM python:${PYTHON_TAG}${PYTHON_DIGEST:+@${PYTHON_DIGEST}}
ARG PYTHON_TAG
ARG PYTHON_DIGEST
LABEL org.opencontainers.image.title="triton-openai proxy" \
    org.opencontainers.image.base.name="docker.io/library/python:${PYTHON_TAG}" \
    org.opencontainers.image.base.digest="${PYTHON_DIGEST}"
ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HOST=0.0.0.0 \
    PORT=9000
WORKDIR /app
COPY --from=build /venv /venv
COPY build_engines build_engines
COPY proxy proxy
RUN python -m compileall -q .
USER 65532:65532
EXPOSE 9000
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
    CMD ["python", "-m", "proxy.cli", "health"]
ENTRYPOINT ["python", "-m", "proxy.cli"]
CMD ["proxy"]
