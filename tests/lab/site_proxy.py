"""The forward proxy of a site, on the registry's host: it alone knows where the names in .invalid are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .conftest import RunningLab
from .on_node import inside, until

HOST = "registry01"
URL = f"http://{HOST}:3128"
PROGRAM = """
import http.server, re, urllib.request
class Proxy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        url = re.sub('^http://[a-z.-]+[.]invalid/', 'http://depot/', self.path)
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
