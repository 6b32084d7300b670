"""An environment as a web server: sums to be done, and a reward for the right answer.

POST /reset                                  {"task": "17+25", "prompt": "What is 17 + 25? ..."}
POST /step {"task": ..., "completion": ...}  {"reward": 1.0, "done": true}
GET  /health
"""

import json
import os
import random
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LONGEST_BODY = 1 << 16
TASK = re.compile(r"(\d{1,3})\+(\d{1,3})")


def reset() -> dict:
    one, two = random.randrange(100), random.randrange(100)
    return {"task": f"{one}+{two}", "prompt": f"What is {one} + {two}? Answer with the number."}


def step(task: str, completion: str) -> dict:
    summands = TASK.fullmatch(task)
    if summands is None:
        raise ValueError("task must be one that /reset gave")
    answers = re.findall(r"\d+", completion)
    right = bool(answers) and int(answers[-1][:9]) == int(summands[1]) + int(summands[2])
    return {"reward": float(right), "done": True}


class Handler(BaseHTTPRequestHandler):
    def answer(self, status: int, value: dict) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.answer(200 if self.path == "/health" else 404, {"healthy": True})

    def do_POST(self) -> None:
        try:
            length = int(self.headers.get("Content-Length") or 0)
            if length > LONGEST_BODY:
                return self.answer(413, {"error": f"at most {LONGEST_BODY} bytes"})
            told = json.loads(self.rfile.read(length) or b"{}")
            if self.path == "/reset":
                return self.answer(200, reset())
            if self.path == "/step":
                return self.answer(200, step(str(told["task"]), str(told["completion"])))
            self.answer(404, {"error": "there are /reset and /step"})
        except (ValueError, KeyError, TypeError) as error:
            self.answer(400, {"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    address = ("0.0.0.0", int(os.environ.get("PORT", "7860")))
    with ThreadingHTTPServer(address, Handler) as server:
        print(f"listening on port {server.server_port}", flush=True)
        server.serve_forever()
