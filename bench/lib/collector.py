"""Takes what is posted, as a collector of OpenTelemetry would, and drops it; usage: collector.py PORT. At its end it says how much came."""

import http.server
import signal
import sys


class Collector(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    requests = 0
    taken = 0

    def do_POST(self):
        Collector.requests += 1
        Collector.taken += len(self.rfile.read(int(self.headers.get("content-length", 0))))
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def end(*_):
    print(f"the collector took {Collector.requests} requests, {Collector.taken} bytes", file=sys.stderr)
    sys.exit(0)


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        """Hosts end, and their connections with them."""


signal.signal(signal.SIGTERM, end)
Server(("127.0.0.1", int(sys.argv[1])), Collector).serve_forever()
