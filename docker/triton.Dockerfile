# Triton and TensorRT-LLM for NVIDIA GPUs, with our models and `triton-openai`; with
# another --build-arg TRITON_TAG, vLLM in TensorRT-LLM's place (docs/vllm.md).
#   docker build -f docker/triton.Dockerfile --target triton -t triton-openai/triton .
#   docker build -f docker/triton.Dockerfile --target multi-node -t triton-openai/triton-multi-node .
# The container is pinned here and nowhere else; 26.07 holds TensorRT-LLM 1.2.1.
# TRITON_DIGEST and KUBECTL_DIGEST pin the base images (sha256:…): docs/security.md.
ARG TRITON_TAG=26.07-trtllm-python-py3
ARG TRITON_DIGEST
ARG KUBECTL_TAG=v1.33.4
ARG KUBECTL_DIGEST

FROM registry.k8s.io/kubectl:${KUBECTL_TAG}${KUBECTL_DIGEST:+@${KUBECTL_DIGEST}} AS kubectl

FROM nvcr.io/nvidia/tritonserver:${TRITON_TAG}${TRITON_DIGEST:+@${TRITON_DIGEST}} AS triton
ARG TRITON_TAG
ARG TRITON_DIGEST
LABEL org.opencontainers.image.title="triton-openai Triton" \
    org.opencontainers.image.base.name="nvcr.io/nvidia/tritonserver:${TRITON_TAG}" \
    org.opencontainers.image.base.digest="${TRITON_DIGEST}"
WORKDIR /app
COPY requirements.lock pyproject.toml ./
COPY docker/install.py docker/
# Our packages are in a venv that sees NVIDIA's. It is not on PATH: Triton's models, MPI's workers and
# upstream's tools take the first python3 there, which is NVIDIA's, with the packages that it tested.
RUN ["python3", "docker/install.py", "beside", "/opt/triton-openai", "gpu"]
ENV PYTHONDONTWRITEBYTECODE=1 \
    ARTIFACTS_DIR=/artifacts \
    HF_HOME=/artifacts/huggingface \
    HOME=/home/triton-server \
    TRITON_HOST=0.0.0.0 \
    TRITON_METRICS_PORT=8002 \
    TRITON_START_TIMEOUT_S=1800
COPY build_engines build_engines
COPY model_repository model_repository
COPY proxy proxy
COPY --chmod=755 docker/triton/triton-openai /usr/local/bin/
COPY docker/triton/wait_idle.py docker/triton/
# tritonclient does not declare which protobuf it needs: one that is too old shows here. NVIDIA's own
# files are in this folder, too. The user is NVIDIA's, whose home is not made there: kernels that are
# compiled at run time are kept in it.
RUN /opt/triton-openai/bin/python3 -c "import build_engines.build, proxy.operate.run, tritonclient.grpc" \
    && /opt/triton-openai/bin/python3 -c "from build_engines.gpu import toolkit; from build_engines.vllm import arguments; arguments.installed() or toolkit.installed()" \
    && python3 -m compileall -q build_engines docker model_repository proxy \
    && install --directory --owner=1000 --group=1000 /artifacts "$HOME"
USER 1000:1000
VOLUME /artifacts
EXPOSE 8001 8002
HEALTHCHECK --interval=10s --timeout=3s --start-period=1800s --retries=3 \
    CMD ["python3", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ['TRITON_METRICS_PORT']}/metrics\", timeout=2)"]
# NVIDIA's entry point stays: it checks driver and GPU, then runs this. In Kubernetes, give `args`.
CMD ["triton-openai", "triton"]

# One model over several nodes: the leader's mpirun starts its ranks in the other pods.
FROM triton AS multi-node
COPY --from=kubectl /bin/kubectl /usr/local/bin/kubectl
COPY --chmod=755 docker/triton/lead docker/triton/follow docker/triton/pod-shell /usr/local/bin/
CMD ["lead"]
