"""What the agent's Bash runs: one operation at the shop, without a key."""

import json
import os
import sys
import urllib.request

op = sys.argv[1]
request = urllib.request.Request(
    f"{os.environ['SHOP']}/do/{op}", json.dumps({"op": op}).encode(), {"content-type": "application/json"}
)
print(json.loads(urllib.request.urlopen(request, timeout=60).read())["receipt"])
