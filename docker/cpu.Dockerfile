# Everything on a CPU: embedded tritonserver, ONNX engine, the demo model, and the proxy.
#   docker build -f docker/cpu.Dockerfile -t triton-openai/cpu .
#   docker run --shm-size=1g -p 127.0.0.1:9000:9000 triton-openai/cpu
ARG PYTHON_TAG=3.12-slim-bookworm

FROM python:${PYTHON_TAG} AS build
ARG TORCH_VERSION=2.13.0
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
WORKDIR /build
RUN python -m venv /venv && /venv/bin/python -m pip install --no-cache-dir \
    "torch==${TORCH_VERSION}" --index-url "${TORCH_INDEX_URL}"
COPY requirements.lock pyproject.toml ./
COPY docker/install.py docker/
RUN /venv/bin/python docker/install.py lock \
    proxy "embedded tritonserver" "models inside Triton, and build" \
    && /venv/bin/python -m pip uninstall --yes pip

FROM python:${PYTHON_TAG}
ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HOST=0.0.0.0 \
    PORT=9000 \
    ARTIFACTS_DIR=/artifacts
WORKDIR /app
COPY --from=build /venv /venv
COPY models.yaml ./
COPY build_engines build_engines
COPY model_repository model_repository
COPY proxy proxy
RUN python -m compileall -q . && install --directory --owner=65532 --group=65532 /artifacts
USER 65532:65532
VOLUME /artifacts
EXPOSE 9000
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ['PORT']}/health/live\", timeout=2)"]
ENTRYPOINT ["python", "-m", "proxy.cli"]
CMD ["serve"]
