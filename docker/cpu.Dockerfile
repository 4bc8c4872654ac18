# A demonstration, all on a CPU: embedded tritonserver, ONNX engine, the demo model, and the proxy.
# The embedded tritonserver is release 24.10, which has known security bugs: docs/security.md.
#   docker build -f docker/cpu.Dockerfile -t triton-openai/cpu .
#   docker run --shm-size=1g -p 127.0.0.1:9000:9000 --env AUTH=off triton-openai/cpu
# AUTH=off lets everybody in who reaches the port. Instead of it, API_KEY=… is the key of callers; with
# PLAINTEXT=on it needs no TLS, since only this machine reaches the port.
# It serves the demo, and models that are built already (ARTIFACTS_DIR). To build other models in it,
# add torch, transformers and onnxruntime-genai: docker build --build-arg BUILD_TOOLS=yes …
# PYTHON_DIGEST pins the base image (sha256:…); docs/security.md says where to get it.
ARG PYTHON_TAG=3.12-slim-bookworm
ARG PYTHON_DIGEST

FROM python:${PYTHON_TAG}${PYTHON_DIGEST:+@${PYTHON_DIGEST}} AS build
ARG BUILD_TOOLS
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
WORKDIR /build
COPY requirements.lock build_engines/requirements-build.lock build_engines/requirements-torch.txt pyproject.toml ./
COPY docker/install.py docker/
RUN python -m venv /venv \
    && /venv/bin/python docker/install.py lock \
    proxy tokenizers "embedded tritonserver" "models inside Triton" "embedding model"
RUN if [ -n "${BUILD_TOOLS}" ]; then \
    /venv/bin/python -m pip install --no-cache-dir \
    -r requirements-torch.txt --index-url "${TORCH_INDEX_URL}" \
    && /venv/bin/python docker/install.py lock "fetching weights" "building models"; fi \
    && /venv/bin/python -m pip uninstall --yes pip

FROM python:${PYTHON_TAG}${PYTHON_DIGEST:+@${PYTHON_DIGEST}}
ARG PYTHON_TAG
ARG PYTHON_DIGEST
LABEL org.opencontainers.image.title="triton-openai CPU demonstration" \
    org.opencontainers.image.description="For trying it out, not for serving strangers: tritonserver 24.10 has known security bugs" \
    org.opencontainers.image.base.name="docker.io/library/python:${PYTHON_TAG}" \
    org.opencontainers.image.base.digest="${PYTHON_DIGEST}" \
    triton-openai.purpose="demonstration"
ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HOST=0.0.0.0 \
    PORT=9000 \
    ARTIFACTS_DIR=/artifacts
WORKDIR /app
COPY --from=build /venv /venv
COPY models.yaml ./
COPY demo_model/__init__.py demo_model/models.yaml demo_model/
COPY demo_model/shipped demo_model/shipped
COPY build_engines build_engines
COPY model_repository model_repository
COPY proxy proxy
RUN python -m compileall -q . && install --directory --owner=65532 --group=65532 /artifacts
USER 65532:65532
VOLUME /artifacts
EXPOSE 9000
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-m", "proxy.cli", "health"]
ENTRYPOINT ["python", "-m", "proxy.cli"]
CMD ["serve"]
