"""usage: python -m dashboards"""

from __future__ import annotations

import json
from pathlib import Path

from dashboards import endpoints, engine, gpu, model, overview, tenant
from dashboards.grafana import document

FOLDER = Path(__file__).parents[1] / "docker" / "grafana" / "dashboards"
ALL = (
    overview.DASHBOARD,
    model.DASHBOARD,
    tenant.DASHBOARD,
    engine.DASHBOARD,
    endpoints.DASHBOARD,
    gpu.DASHBOARD,
)


def files() -> dict[Path, str]:
    """Path -> content, of each dashboard."""
    return {
        FOLDER / f"{each.name}.json": json.dumps(document(each), indent=1) + "\n" for each in ALL
    }


if __name__ == "__main__":
    for path, content in files().items():
        path.write_text(content)
