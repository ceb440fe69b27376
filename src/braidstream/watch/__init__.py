"""What watches flows from beside: the dashboard and the metrics. It reads histories, and changes nothing."""
