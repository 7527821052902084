"""Loaded by mitmdump, in its own interpreter: sends each request to the gateway of the world that it came from.

It imports nothing of ours: mitmproxy may live in another environment than Surefoot.
"""

# pyright: basic, reportMissingImports=false

from pathlib import Path

from mitmproxy import ctx  # ty: ignore

HOST_HEADER = "x-surefoot-crashtest-host"


class Lead:
    """The folder holds one file for each port, with the address of its gateway."""

    def load(self, loader):
        """Declare the option that names the folder."""
        loader.add_option("surefoot_folder", str, "", "where the gateways' addresses stand")

    def request(self, flow):
        """Rewrite one request; its host goes along in a header."""
        port = flow.client_conn.sockname[1]
        host, _, gateway_port = (Path(ctx.options.surefoot_folder) / str(port)).read_text().partition(":")
        flow.request.headers[HOST_HEADER] = flow.request.pretty_host
        flow.request.scheme, flow.request.host, flow.request.port = "http", host, int(gateway_port)


addons = [Lead()]
