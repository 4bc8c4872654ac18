"""What can be seen of the proxy: logs and metrics. Imports domain only."""
