"""What Grafana's dashboards show. `python -m dashboards` writes docker/grafana/dashboards/."""
