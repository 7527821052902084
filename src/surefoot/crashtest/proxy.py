"""An intercepting proxy for agents that cannot be given a base URL: mitmproxy, as a process of its own.

It opens TLS with a certificate of its own making, and hands each request to the gateway of the world whose port it
came in by. Everything else (numbers, kills, answers) is the gateway's, as for any other request.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Mapping
from pathlib import Path

from .config import Config, worlds_at_once
from .errors import MISSING_EXTRA, CrashtestError
from .services.opening import free_port
from .supervise import Proxied

READY_SECONDS_MAX = 60.0
CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")


def program() -> str:
    """Where mitmdump is. Raises CrashtestError when it is nowhere."""
    found = os.environ.get("SUREFOOT_MITMDUMP") or shutil.which("mitmdump")
    beside = Path(sys.executable).with_name("mitmdump")
    if found is None and beside.exists():
        found = str(beside)
    if found is None:
        raise CrashtestError(
            "proxy = true needs mitmproxy: pip install 'surefoot[crashtest]', or, where its pins disagree with yours, "
            "`pipx install mitmproxy` (any mitmdump on PATH will do, or name it by SUREFOOT_MITMDUMP)",
            code=MISSING_EXTRA,
        )
    return found


@contextlib.contextmanager
def proxy_of(config: Config) -> Generator[Proxied | None]:
    """Leads worlds through a proxy while this is open; None when the configuration wants none."""
    if not config.proxy:
        yield None
        return
    ports = [free_port() for _ in range(worlds_at_once(config))]
    with tempfile.TemporaryDirectory(prefix="surefoot-proxy-") as name:
        folder = Path(name)
        process = _start(folder, ports)
        try:
            free, lock = list(ports), threading.Lock()

            @contextlib.contextmanager
            def lead(gateway: str) -> Generator[Mapping[str, str]]:
                with lock:
                    port = free.pop()
                (folder / str(port)).write_text(gateway.removeprefix("http://"))
                try:
                    yield variables(port, folder / "certificates.pem")
                finally:
                    with lock:
                        free.append(port)

            yield lead
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def _start(folder: Path, ports: list[int]) -> subprocess.Popen[bytes]:
    modes = [word for port in ports for word in ("--mode", f"regular@127.0.0.1:{port}")]
    options = ["--set", f"confdir={folder}", "--set", f"surefoot_folder={folder}", "--set", "connection_strategy=lazy"]
    quiet = ["--set", "flow_detail=0", "--set", "termlog_verbosity=warn", "--set", "http2=false"]
    output = folder / "mitmdump.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [program(), "-s", str(Path(__file__).with_name("proxy_addon.py")), *modes, *options, *quiet],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    authority = folder / "mitmproxy-ca-cert.pem"
    give_up = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < give_up and process.poll() is None:
        if authority.exists() and all(_listens(port) for port in ports):
            usual = _usual_certificates()
            (folder / "certificates.pem").write_bytes(usual + b"\n" + authority.read_bytes())
            return process
        time.sleep(0.05)
    process.kill()
    words = output.read_text(errors="replace").strip()[-600:]
    raise CrashtestError(
        f"mitmdump does not start: {words or 'it printed nothing'}; try it by hand: {program()} --version"
    )


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _usual_certificates() -> bytes:
    """The machine's own authorities: a bundle that replaces them must still hold them."""
    import ssl

    paths = ssl.get_default_verify_paths()
    for name in (paths.cafile, paths.openssl_cafile, "/etc/ssl/certs/ca-certificates.crt"):
        if name and Path(name).exists():
            return Path(name).read_bytes()
    return b""


def variables(port: int, certificates: Path) -> dict[str, str]:
    """What leads a program to the proxy, in every language that reads the usual variables."""
    address = f"http://127.0.0.1:{port}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    proxies = {each: address for name in names for each in (name, name.lower())}
    return {**proxies, "NODE_USE_ENV_PROXY": "1", **{name: str(certificates) for name in CERTIFICATES}}
