"""What Skyvern meets: a checkout page, a scripted model, a browser; and the server itself as a process."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

from surefoot.testing.models import Ask, Say
from targets.shop import Json, Shop

PAGE = "<!doctype html><html><head><title>Checkout</title></head><body><h1>Checkout</h1>{}</body></html>"
FORM = '<form method="post" action="/order"><button type="submit">Place order</button></form>'
READY_SECONDS = 420.0


class Checkout(Shop):
    """`GET /checkout` shows one button, which posts to `/order`."""

    def serve(self, method: str, path: str, body: Json, headers: Any) -> tuple[int, Json | str] | None:
        """Answer the browser; the shop's own requests go on as ever."""
        if method == "POST" and path == "/order":
            key = headers.get("Idempotency-Key") or ""

            def order() -> tuple[int, str]:
                self.act("order", {"form": "order"}, key)
                return 200, PAGE.format("<p>Thank you. Your order was received.</p>")

            return self.answer("order", self.arrive("order"), order)
        if path.startswith(("/find/", "/do/")):
            return super().serve(method, path, body, headers)
        return 200, PAGE.format(FORM if path.startswith("/checkout") else "")


def plan(ask: Ask) -> Say:
    """Press the button if the page in the prompt shows it, else say that the goal is reached."""
    text = re.sub(r"\\+\"", '"', ask.text)
    button = re.search(r"<button[^<>]*\bid=\"?(\w+)\"?[^<>]*>\s*Place order", text)
    action: Json = {
        "action_type": "COMPLETE",
        "id": None,
        "reasoning": "the order was received",
        "confidence_float": 1.0,
    }
    if button:
        action = {
            "action_type": "CLICK",
            "id": button[1],
            "reasoning": "the button orders",
            "confidence_float": 1.0,
            "user_detail_query": "which button",
            "user_detail_answer": "Place order",
            "download": False,
            "click_context": {"single_option_click": True},
        }
    said = {
        "user_goal_stage": "checkout",
        "user_goal_achieved": button is None,
        "action_plan": "press, then stop",
        "thoughts": "one button",
        "page_info": "",
        "confident": True,
        "is_terminated": False,
        "status": "complete",
        "actions": [action],
    }
    return Say(text=json.dumps(said))


def browsers(python: str, folder: Path) -> Path:
    """A folder that looks to Playwright like its own downloads and holds the system's Chromium and ffmpeg."""
    chromium, ffmpeg = Path("/usr/lib/chromium/chromium"), shutil.which("ffmpeg")
    if not chromium.exists() or ffmpeg is None:
        raise RuntimeError("Skyvern needs a browser: apt-get install chromium ffmpeg")
    code = (
        "import playwright, pathlib; print(pathlib.Path(playwright.__file__).parent / 'driver/package/browsers.json')"
    )
    listed = Path(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip())
    revision = {each["name"]: each["revision"] for each in json.loads(listed.read_text())["browsers"]}
    shell = revision.get("chromium-headless-shell", revision["chromium"])
    for place, options in (
        (f"chromium-{revision['chromium']}/chrome-linux/chrome", ""),
        (f"chromium-{revision['chromium']}/chrome-linux64/chrome", ""),
        (f"chromium_headless_shell-{shell}/chrome-linux/headless_shell", "--headless=new"),
        (f"chromium_headless_shell-{shell}/chrome-headless-shell-linux64/chrome-headless-shell", "--headless=new"),
    ):
        file = folder / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'#!/bin/sh\nexec {chromium} --no-sandbox {options} "$@"\n')
        file.chmod(0o755)
        for root in (file.parents[1], file.parent):
            (root / "INSTALLATION_COMPLETE").touch()
    tool = folder / f"ffmpeg-{revision['ffmpeg']}" / "ffmpeg-linux"
    tool.parent.mkdir(parents=True)
    tool.symlink_to(ffmpeg)
    (tool.parent / "INSTALLATION_COMPLETE").touch()
    return folder


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """Skyvern's server: started, killed, started again on the same database."""

    def __init__(self, python: str, world: Path, model: str) -> None:
        self._python, self._world, self._lives = python, world, 0
        self.port = free_port()
        self.ends: list[int] = []
        self._env = {
            **os.environ,
            "DATABASE_STRING": f"sqlite+aiosqlite:///{world}/skyvern.db",
            "HOME": str(world),
            "PORT": str(self.port),
            "ENV": "local",
            "BROWSER_TYPE": "chromium-headless",
            "PLAYWRIGHT_BROWSERS_PATH": str(browsers(python, world / "browsers")),
            "ALLOWED_HOSTS": '["127.0.0.1"]',
            "SKYVERN_TELEMETRY": "false",
            "SKYVERN_STORAGE_TYPE": "local",
            "ENABLE_CODE_BLOCK": "false",
            "ENABLE_OPENAI_COMPATIBLE": "true",
            "OPENAI_COMPATIBLE_MODEL_NAME": "gpt-scripted",
            "OPENAI_COMPATIBLE_API_KEY": "scripted",
            "OPENAI_COMPATIBLE_API_BASE": model + "/v1",
            "LLM_KEY": "OPENAI_COMPATIBLE",
            "SECONDARY_LLM_KEY": "OPENAI_COMPATIBLE",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "NO_PROXY": "*",
        }

    def start(self) -> int:
        """Start it and wait until it answers; its process group."""
        self._lives += 1
        log = (self._world / f"server-{self._lives}.log").open("wb")
        self.process = subprocess.Popen(
            [self._python, "-m", "skyvern.forge"],
            cwd=self._world,
            env=self._env,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        log.close()
        give_up = time.monotonic() + READY_SECONDS
        while time.monotonic() < give_up:
            if self.process.poll() is not None:
                raise RuntimeError((self._world / f"server-{self._lives}.log").read_text()[-2000:])
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/heartbeat", timeout=2).close()
                return self.process.pid
            except OSError:
                time.sleep(0.5)
        raise TimeoutError("Skyvern's server did not answer")

    def key(self) -> str:
        """The API key that it made for itself at its first start."""
        query = "SELECT token FROM organization_auth_tokens WHERE token_type = 'api' AND valid ORDER BY created_at DESC"
        for _ in range(120):
            try:
                with sqlite3.connect(self._world / "skyvern.db") as database:
                    if row := database.execute(query).fetchone():
                        return str(row[0])
            except sqlite3.Error:
                pass
            time.sleep(0.5)
        raise TimeoutError("Skyvern made no API key")

    def tasks(self) -> list[str]:
        """The status of each task, the oldest first."""
        with sqlite3.connect(self._world / "skyvern.db") as database:
            return [str(row[0]) for row in database.execute("SELECT status FROM tasks ORDER BY created_at")]

    def dead(self) -> bool:
        """True when it has ended; its status is then in `ends`."""
        if self.process.poll() is None:
            return False
        if len(self.ends) < self._lives:
            self.ends.append(self.process.returncode)
            sweep(self._world)
        return True

    def stop(self) -> None:
        """End it, and its browsers."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        sweep(self._world)


def sweep(world: Path) -> None:
    """End what this server left outside its process group: processes whose HOME is this world's folder."""
    mark = f"HOME={world}".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:
            continue
