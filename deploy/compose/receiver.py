"""An endpoint for webhooks, to look at: it checks each signature and prints the event.

    python3 receiver.py <file with the secret> [port]

It is the receiver of docker-compose.yml with COMPOSE_PROFILES=webhook. A real one stores the event together with its
webhook-id before it answers: an id that is already there is a duplicate, and is answered like the first.
"""

import base64
import hashlib
import hmac
import http.server
import sys
import time
import urllib.parse

FRESH = 300  # seconds for which a signature is taken

with open(sys.argv[1], encoding="ascii") as file:
    # One line each, so that a new secret can stand beside the old one for a while.
    KEYS = [base64.b64decode(line.strip().removeprefix("whsec_")) for line in file if line.strip()]


class Endpoint(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept

    def do_HEAD(self):  # by which "cdc-relay check" asks whether somebody is there
        self.answer(204)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if not self.signed(body):
            self.answer(401, "the signature is none of this secret, or is too old")
            return
        key = urllib.parse.unquote(self.headers.get("x-outbox-key", "-"))
        said = [self.headers.get(name, "-") for name in ("event-type", "webhook-id")]
        print(self.path, key, *said, body.decode(), flush=True)
        self.answer(204)

    def signed(self, body):
        """Whether one of the signatures is of this body, by one of the keys, and fresh: standardwebhooks.com."""
        sent = self.headers.get("webhook-timestamp", "")
        if not sent.isdecimal() or abs(time.time() - int(sent)) > FRESH:
            return False
        text = f"{self.headers.get('webhook-id', '')}.{sent}.".encode() + body
        good = [b"v1," + base64.b64encode(hmac.digest(key, text, hashlib.sha256)) for key in KEYS]
        signatures = self.headers.get("webhook-signature", "").encode().split()
        return any(hmac.compare_digest(one, another) for one in signatures for another in good)

    def answer(self, status, text=""):
        self.send_response(status)
        if status != 204:
            self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):  # what there is to say is printed above
        pass


server = http.server.ThreadingHTTPServer(("", int(sys.argv[2]) if len(sys.argv) > 2 else 8000), Endpoint)
print("listening on port", server.server_port, flush=True)
server.serve_forever()
