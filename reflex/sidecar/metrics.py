"""Counts for Prometheus, as its text format has them. Owned by app, which tells it what happens."""

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)  # seconds
TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counters since the start; what an Engine is at is read from it."""

    def __init__(self, engine):
        self._engine = engine
        self._requests = {}  # (path, status) -> count
        self._seconds = {}  # path -> [count in each bucket..., all, sum]
        self.tokens = {"prompt": 0, "completion": 0}
        self.cancelled = {"left": 0, "late": 0}

    def answered(self, path, status, seconds):
        """A request was answered."""
        self._requests[path, status] = self._requests.get((path, status), 0) + 1
        row = self._seconds.setdefault(path, [0] * (len(BUCKETS) + 1) + [0.0])
        for index, bound in enumerate(BUCKETS):
            row[index] += seconds <= bound
        row[-2] += 1
        row[-1] += seconds

    def text(self):
        """All of them."""
        lines = []

        def family(name, kind, meaning, rows):
            lines.append(f"# HELP reflex_{name} {meaning}\n# TYPE reflex_{name} {kind}")
            lines.extend([f"reflex_{name}{labels} {value}" for labels, value in rows])

        requests = [(f'{{path="{path}",status="{status}"}}', count) for (path, status), count in sorted(self._requests.items())]
        family("requests_total", "counter", "Answers by path and status; 0 where the client left before one.", requests)
        rows = []
        for path, row in sorted(self._seconds.items()):
            bounds = [*BUCKETS, "+Inf"]
            rows += [(f'_bucket{{path="{path}",le="{bound}"}}', count) for bound, count in zip(bounds, row[:-1], strict=True)]
            rows += [(f'_sum{{path="{path}"}}', round(row[-1], 6)), (f'_count{{path="{path}"}}', row[-2])]
        family("request_seconds", "histogram", "Seconds from the head of a request to the end of its answer.", rows)
        tokens = [(f'{{kind="{kind}"}}', count) for kind, count in self.tokens.items()]
        family("tokens_total", "counter", "Tokens that were read and made.", tokens)
        ended = [(f'{{why="{why}"}}', count) for why, count in self.cancelled.items()]
        family("cancelled_total", "counter", "Requests that ended because their client left, or took too long.", ended)
        for name, kind, meaning, value in gauges(self._engine):
            family(name, kind, meaning, [("", value)])
        return "\n".join([*lines, ""])


def gauges(engine):
    """(name, kind, help, value) of what an Engine is at."""
    yield "worker_ready", "gauge", "1 where the worker answers.", int(engine.state == "ready")
    yield "worker_starts_total", "counter", "Workers that were started.", engine.starts
    yield "requests_running", "gauge", "Requests that the worker is at.", int(engine.busy)
    yield "requests_waiting", "gauge", "Requests that wait for it.", len(engine.waiting)
    yield "queue_limit", "gauge", "Requests that may wait.", engine.limit
