"""GPUs, as NVIDIA's DCGM exporter sees them, and as Triton does."""

from __future__ import annotations

from dashboards.panel import Dashboard, Panel, Query, Row, Variable

GPU = 'Hostname=~"$Hostname"'


def dcgm(metric: str, legend: str = "", factor: str = "") -> Query:
    """factor: what makes Grafana's unit of NVIDIA's, such as ` * 1e6`."""
    expr = f"max by (Hostname, gpu) (DCGM_FI_{metric}{{{GPU}}}){factor}"
    return Query(expr=expr, legend=f"{{{{Hostname}}}} {{{{gpu}}}} {legend}".strip())


def triton(metric: str, legend: str = "") -> Query:
    return Query(
        expr=f"max by (instance, gpu_uuid) ({metric})",
        legend=f"{{{{instance}}}} {{{{gpu_uuid}}}} {legend}".strip(),
    )


WORK = Row(
    title="Work (DCGM exporter)",
    panels=(
        Panel(
            title="GPU busy",
            note="A kernel ran, however small. Tensor cores say more.",
            unit="percent",
            queries=(dcgm("DEV_GPU_UTIL"),),
        ),
        Panel(
            title="Tensor cores active",
            note="Profiling metrics need a data-center GPU.",
            unit="percentunit",
            queries=(dcgm("PROF_PIPE_TENSOR_ACTIVE"),),
        ),
        Panel(
            title="Memory bandwidth in use",
            unit="percentunit",
            queries=(dcgm("PROF_DRAM_ACTIVE"),),
        ),
        Panel(
            title="Memory",
            unit="bytes",
            queries=(
                dcgm("DEV_FB_USED", "used", " * 1048576"),
                dcgm("DEV_FB_FREE", "free", " * 1048576"),
            ),
        ),
        Panel(
            title="NVLink",
            unit="Bps",
            queries=(
                dcgm("PROF_NVLINK_TX_BYTES", "sent"),
                dcgm("PROF_NVLINK_RX_BYTES", "received"),
            ),
        ),
        Panel(
            title="PCIe",
            unit="Bps",
            queries=(
                dcgm("PROF_PCIE_TX_BYTES", "sent"),
                dcgm("PROF_PCIE_RX_BYTES", "received"),
            ),
        ),
    ),
)

HEALTH = Row(
    title="Health (DCGM exporter)",
    panels=(
        Panel(title="Temperature", unit="celsius", queries=(dcgm("DEV_GPU_TEMP"),)),
        Panel(title="Power", unit="watt", queries=(dcgm("DEV_POWER_USAGE"),)),
        Panel(
            title="Clock",
            note="Falls when the GPU is hot or short of power.",
            unit="hertz",
            queries=(dcgm("DEV_SM_CLOCK", factor=" * 1e6"),),
        ),
        Panel(
            title="Last XID error",
            note="0: none. NVIDIA's documentation explains the numbers.",
            queries=(dcgm("DEV_XID_ERRORS"),),
        ),
    ),
)

TRITON = Row(
    title="As Triton sees it",
    panels=(
        Panel(title="Busy", unit="percentunit", queries=(triton("nv_gpu_utilization"),)),
        Panel(
            title="Memory used and total",
            unit="bytes",
            queries=(
                triton("nv_gpu_memory_used_bytes", "used"),
                triton("nv_gpu_memory_total_bytes", "total"),
            ),
        ),
        Panel(
            title="Power and its limit",
            unit="watt",
            queries=(
                triton("nv_gpu_power_usage", "now"),
                triton("nv_gpu_power_limit", "limit"),
            ),
        ),
    ),
)

DASHBOARD = Dashboard(
    name="gpu",
    title="GPU",
    note="GPUs by NVIDIA's DCGM exporter, which its GPU operator runs, and by Triton. A "
    "host is the exporter's label `Hostname`.",
    variables=(Variable(label="Hostname", metric="DCGM_FI_DEV_GPU_UTIL", title="Host"),),
    rows=(WORK, HEALTH, TRITON),
)
