"""Counts and durations of a service, as Prometheus reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)  # seconds


class Metrics:
    """Counters of requests and rows, and a histogram of the durations of requests."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.rows = 0
        self.repeated = 0
        self.expired = 0
        self.failures = Counter({"expire": 0, "compact": 0})  # of chores
        self.seconds: dict[str, list[int]] = {}
        self.total: Counter[str] = Counter()

    def note(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests[route, status] += 1
        counts = self.seconds.setdefault(route, [0] * (len(BOUNDS) + 1))
        counts[sum(seconds > bound for bound in BOUNDS)] += 1
        self.total[route] += seconds  # type: ignore[assignment]

    def text(self, gauges: dict[str, float], far_values: Mapping[str, int]) -> str:
        """All of it in Prometheus' text format, with gauges and the number of far values per channel."""
        lines = ["# TYPE neuralcde_requests_total counter"]
        for (route, status), count in sorted(self.requests.items()):
            lines.append(f'neuralcde_requests_total{{route="{route}",status="{status}"}} {count}')
        for name, value in (("rows", self.rows), ("repeated_rows", self.repeated), ("expired_streams", self.expired)):
            lines += [f"# TYPE neuralcde_{name}_total counter", f"neuralcde_{name}_total {value}"]
        lines.append("# TYPE neuralcde_chore_failures_total counter")
        lines += [f'neuralcde_chore_failures_total{{chore="{name}"}} {n}' for name, n in self.failures.items()]
        lines.append("# TYPE neuralcde_far_values_total counter")
        for channel, count in sorted(far_values.items()):
            lines.append(f'neuralcde_far_values_total{{channel="{_escaped(channel)}"}} {count}')
        for name, gauge in gauges.items():
            lines += [f"# TYPE neuralcde_{name} gauge", f"neuralcde_{name} {gauge!r}"]
        lines.append("# TYPE neuralcde_request_seconds histogram")
        for route, counts in sorted(self.seconds.items()):
            below = 0
            for bound, count in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True):
                below += count
                lines.append(f'neuralcde_request_seconds_bucket{{route="{route}",le="{bound}"}} {below}')
            lines.append(f'neuralcde_request_seconds_sum{{route="{route}"}} {self.total[route]:.6f}')
            lines.append(f'neuralcde_request_seconds_count{{route="{route}"}} {below}')
        return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
