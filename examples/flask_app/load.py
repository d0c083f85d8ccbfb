"""A load loop: each client sends a request as soon as it has an answer, on a new connection for each
request, because gunicorn's sync workers close the connection.

python load.py --seconds 10
"""

import argparse
import http.client
import itertools
import json
import signal
import sys
import threading
import time
from urllib.parse import urlsplit


def manifest(number, levels=12):
    """ "(container C-7 (container C-6 ... goods ...) goods)": a few goods on every level, most of
    them at the bottom, and one of those is still to be weighed."""

    def goods(count):
        return " ".join(f"good-{i} {(number * 7 + i) % 90}" for i in range(count))

    outer = "".join(f"(container C-{number}-{level} {goods(2)} " for level in range(levels))
    return f"{outer}{goods(200)} seal ?{')' * levels}"


MANIFESTS = [manifest(number).encode() for number in range(16)]


class Client:
    """ms of each answered request, and the number of wrong or missing answers."""

    def __init__(self, url):
        self.url = url
        self.latencies = []
        self.failed = 0
        self.number = 0
        self.said = None

    def run(self, go):
        while go():
            started = time.monotonic()
            self.number += 1
            try:
                good = self.hand_in() if self.number % 2 else self.fetch()
            except (OSError, http.client.HTTPException) as error:
                self.failed += 1
                self.say(f"load: {type(error).__name__}: {error}")
                time.sleep(0.05)
                continue
            self.latencies.append((time.monotonic() - started) * 1000)
            self.failed += not good

    def say(self, text):
        """Prints a text only once: an ended application stays ended."""
        if text != self.said:
            print(text, file=sys.stderr)
        self.said = text

    def hand_in(self):
        body = MANIFESTS[self.number % len(MANIFESTS)]
        return b'"levels":12' in self.ask("POST", "/manifests", body, {"Content-Type": "text/plain"})

    def fetch(self):
        return b'"checksum":"' in self.ask("GET", f"/labels/{self.number}")

    def ask(self, method, path, body=None, headers=None):
        """Returns the body of a good answer; nothing otherwise."""
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            text = answer.read()
            return text if answer.status == 200 else b""
        finally:
            connection.close()


def options():
    parser = argparse.ArgumentParser(
        description="Hands in manifests and fetches labels in turn, and checks the answers. "
        "Ctrl-C ends it; it prints what there is.",
        epilog="python load.py --threads 1 --requests 1000 --json | jq .latency_ms.p99",
    )
    add = parser.add_argument
    add("--url", type=urlsplit, default="http://127.0.0.1:9293", help="the application (%(default)s)")
    add("--threads", type=int, default=4, metavar="N", help="clients at a time (%(default)s)")
    add("--seconds", type=float, default=10.0, metavar="S", help="how long (%(default)s)")
    add("--requests", type=float, default=float("inf"), metavar="N", help="stop after so many requests")
    rate = "at most N requests a second, of all clients together"
    add("--rate", type=float, metavar="N", help=rate)
    fields = "one JSON object: requests, failed, seconds, per_second, latency_ms"
    add("--json", action="store_true", help=fields)
    return parser.parse_args()


def main():
    chosen = options()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    started = time.monotonic()
    left, sent = [chosen.requests], itertools.count(1)

    def go():
        left[0] -= 1
        if chosen.rate:
            stopped.wait(max(0, next(sent) / chosen.rate - (time.monotonic() - started)))
        return not stopped.is_set() and left[0] >= 0 and time.monotonic() - started < chosen.seconds

    clients = [Client(chosen.url) for _ in range(chosen.threads)]
    threads = [threading.Thread(target=client.run, args=(go,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - started
    latencies = sorted(ms for client in clients for ms in client.latencies)
    failed = sum(client.failed for client in clients)

    def percentile(part):
        return round(latencies[round((len(latencies) - 1) * part)], 2) if latencies else None

    latency = {"p50": percentile(0.5), "p90": percentile(0.9), "p99": percentile(0.99), "max": percentile(1)}
    per_second = round(len(latencies) / seconds, 1)
    if chosen.json:
        result = {"requests": len(latencies), "failed": failed, "seconds": round(seconds, 3)}
        print(json.dumps({**result, "per_second": per_second, "latency_ms": latency}))
    else:
        print(f"{len(latencies)} requests in {seconds:.1f} s: {per_second} a second, {failed} failed")
        print(
            "latency: half within {p50} ms, 90 % within {p90} ms, "
            "99 % within {p99} ms, longest {max} ms".format(**latency)
        )
    sys.exit(1 if failed or not latencies else 0)


if __name__ == "__main__":
    main()
