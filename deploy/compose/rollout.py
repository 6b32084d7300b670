"""Stands for a rollout server: follows a run in memory and says over HTTP which step it serves.

usage: rollout.py RUN --port PORT
"""

import argparse
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import wisp

weights = {"layers.0.weight": np.zeros((1024, 1024), np.float16)}
serving = {"step": None, "digest": None}


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(serving).encode()
        self.send_response(200 if serving["step"] is not None else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *ignored):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    server = ThreadingHTTPServer(("0.0.0.0", arguments.port), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while True:
        try:
            follower = wisp.Follower(arguments.run, weights)
            while True:
                follower.sync()
                serving.update(step=follower.step, digest=wisp.digest(weights))
                time.sleep(0.5)
        except (wisp.NoRunError, wisp.NotFoundError, wisp.UnavailableError) as error:
            print(f"waiting: {error}", flush=True)
            time.sleep(1)


if __name__ == "__main__":
    main()
