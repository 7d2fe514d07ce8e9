"""Stands where a notebook server would: tells the hub that it is up, and what it was given."""

import json
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("X-JupyterHub-Version", "6.1.1")
        self.end_headers()

    def log_message(self, *_):
        pass


Path("environment.json").write_text(json.dumps(dict(os.environ)))
url = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
HTTPServer((url.hostname, url.port), Answer).serve_forever()
