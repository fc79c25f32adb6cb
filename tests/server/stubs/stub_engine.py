"""A server with the face of an engine and one way of misbehaving; run through the real launch."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ["A", " lamp", " lights", " a", " room", " at", " night", ".", " It", " is", " useful", "."]


def stream(words: list[str]) -> Iterator[dict[str, Any]]:
    for number, word in enumerate(words):
        choice = {"index": 0, "delta": {"content": word}, "token_ids": [hash(word) % 1000]}
        yield {"id": f"chunk-{number}", "choices": [choice]}
    yield {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": len(words)}}


class Handler(BaseHTTPRequestHandler):
    behaviour = "healthy"
    model = ""

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: object, kind: str = "application/json") -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        pages = {
            "/health": {},
            "/version": {"version": "0.0-stub"},
            "/v1/models": {"data": [{"id": self.model, "max_model_len": 4096, "root": "stub"}]},
        }
        if self.behaviour == "wants-key" and self.path == "/v1/models":
            self.answer(401, {"error": "Unauthorized"})
        elif self.behaviour == "unhealthy-later" and self.path == "/health":
            self.answer(503, "")
        elif self.path == "/metrics":
            info = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0\n'
            self.answer(200, info, "text/plain")
        elif self.path in pages:
            self.answer(200, pages[self.path])
        else:
            self.answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        request = json.loads(self.rfile.read(length))
        if self.path == "/tokenize":
            self.answer(200, {"count": 1, "tokens": [1]})
        elif self.behaviour == "silent":
            time.sleep(60)
        elif self.behaviour == "drips":
            self.drip()
        elif self.behaviour == "no-tools" and request.get("tools"):
            message = '"auto" tool choice requires --enable-auto-tool-choice'
            self.answer(400, {"error": {"message": message}})
        elif self.behaviour == "errors":
            self.answer(500, {"error": {"message": "EngineCore encountered an issue"}})
        elif self.behaviour == "dies-when-asked":
            say("RuntimeError: kernel exploded")
            os._exit(9)
        else:
            words = ["!"] * 32 if self.behaviour == "garbage" else WORDS
            events = [f"data: {json.dumps(each)}\n\n" for each in stream(words)]
            self.answer(200, "".join([*events, "data: [DONE]\n\n"]), "text/event-stream")

    def drip(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        while True:
            self.wfile.write(b": ping\n\n")
            self.wfile.flush()
            time.sleep(0.1)


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def die() -> None:
    say("loading")
    say("torch.OutOfMemoryError: CUDA out of memory.")
    sys.exit(3)


def mismatch() -> None:
    say("RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x9 and 8x8)")
    sys.exit(1)


def load_slowly() -> None:
    for phase in ("non-default args", "Starting to load model", "GPU KV cache size", "more"):
        say(phase)
        time.sleep(0.4)


def chatter() -> None:
    while True:
        say("still trying")
        time.sleep(0.05)


def ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def leave_a_stray() -> None:
    sleeper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    subprocess.Popen([sys.executable, "-c", sleeper], start_new_session=True)


def leave_a_stray_and_die() -> None:
    leave_a_stray()
    time.sleep(0.3)
    sys.exit(4)


BEFORE_LISTENING: dict[str, Callable[[], object]] = {
    "dies": die,
    "mismatched": mismatch,
    "gives-up": lambda: sys.exit(0),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "slow": load_slowly,
    "mute": lambda: time.sleep(60),
    "chatters": chatter,
    "stubborn": ignore_sigterm,
    "has-stray": leave_a_stray,
    "has-stray-then-dies": leave_a_stray_and_die,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--behaviour", default="healthy")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--served-model-name", required=True)
    options, _ = parser.parse_known_args()
    BEFORE_LISTENING.get(options.behaviour, lambda: None)()
    Handler.behaviour = options.behaviour
    Handler.model = "someone-else" if options.behaviour == "renamed" else options.served_model_name
    server = ThreadingHTTPServer((options.host, options.port), Handler)
    say("Application startup complete.")
    server.serve_forever()


if __name__ == "__main__":
    main()
