"""The forward proxy of a site, on the registry's host: it alone knows where the names in .invalid are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .conftest import RunningLab
from .on_node import inside, until

HOST = "registry01"
URL = f"http://{HOST}:3128"
SEEN = "/tmp/proxy.seen"  # on the host of a lab
PROGRAM = f"""
import http.server, pathlib, re, select, socket, urllib.parse, urllib.request
class Proxy(http.server.BaseHTTPRequestHandler):
    def note(self, server):
        with open('{SEEN}', 'a') as seen:
            seen.write(server + chr(10))
    def do_GET(self):
        url = re.sub('^http://[a-z.-]+[.]invalid/', 'http://depot/', self.path)
        self.note(urllib.parse.urlsplit(self.path).netloc)
        try:
            answer = urllib.request.urlopen(urllib.request.Request(url, method=self.command))
        except urllib.error.HTTPError as error:
            answer = error
        body = answer.read()
        self.send_response(answer.status)
        self.send_header('Content-Length', answer.headers.get('Content-Length', len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_HEAD = do_GET
    def do_CONNECT(self):
        self.note(self.path)
        host, _, port = self.path.rpartition(':')
        with socket.create_connection((host, int(port))) as server:
            self.send_response(200)
            self.end_headers()
            to = {{self.connection: server, server: self.connection}}
            while True:
                for end in select.select(list(to), [], [])[0]:
                    if not (data := end.recv(1 << 18)):
                        return
                    to[end].sendall(data)
http.server.ThreadingHTTPServer(('', 3128), Proxy).serve_forever()
"""


@contextmanager
def site_proxy(lab: RunningLab) -> Iterator[None]:
    """The proxy runs."""
    write = f"cat >/tmp/proxy.py <<'END'\n{PROGRAM}END\n"
    inside(lab, f"{write}systemd-run --quiet --unit=proxy python3 /tmp/proxy.py", host=HOST)
    try:
        until(lab, "ss -ltn | grep -q :3128", host=HOST)
        yield
    finally:
        inside(lab, "systemctl stop proxy; rm /tmp/proxy.py", host=HOST)


def servers_asked(lab: RunningLab) -> set[str]:
    """What was reached through the proxy."""
    return set(inside(lab, f"cat {SEEN}", host=HOST).split())
