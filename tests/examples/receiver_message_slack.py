"""A message through slack_sdk: Slack knows no keys, so the message carries its mark and the channel is read first.

The mark is metadata, which people do not see. In doubt, `conversations.history` shows whether the message is there.
"""

import os
import signal
import subprocess
import sys

from slack_sdk import WebClient

from surefoot import Attempt, Surefoot, effect, receivers, workflow
from surefoot.testing.twins import Twin, wire


def client(attempt: Attempt) -> WebClient:
    return WebClient("xoxb-1", base_url=f"{sys.argv[1]}/api/", **attempt.options("slack_sdk"))


@effect(receivers.get("slack.chat_post_message"), identity="report:{day}")
def report(attempt: Attempt, day: str, channel: str, text: str) -> dict[str, str]:
    mark = {"event_type": "intent", "event_payload": {"key": attempt.key}}
    sent = client(attempt).chat_postMessage(channel=channel, text=text, metadata=mark)
    if sys.argv[2] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"ts": sent["ts"], "text": text}


@report.lookup
def find_report(attempt: Attempt, day: str, channel: str, text: str) -> dict[str, str] | None:
    print("reading the channel")
    oldest = str(int(attempt.record.created_at) - 60)  # a while before the intent, in whole seconds as Slack counts
    for page in client(attempt).conversations_history(channel=channel, oldest=oldest, include_all_metadata=True):
        for message in page["messages"]:
            if message.get("metadata", {}).get("event_payload") == {"key": attempt.key}:
                return {"ts": message["ts"], "text": message["text"]}
    return None


@workflow
def daily(day: str) -> str:
    return report(day, "C024BE91L", "All orders have left.")["text"]


if len(sys.argv) == 3:  # a life of the agent
    with Surefoot("agent.db") as sf:
        print("posted:", sf.run(daily, "monday", id="daily-monday"))
else:
    with Twin(wire.slack.BEHAVIOUR, wire=wire.slack.Wire()) as twin:
        for life in ("dies", "lives"):
            status = subprocess.run([sys.executable, __file__, twin.url, life]).returncode
            print("the agent", life, "with status", status, flush=True)
        print("requests:", len(twin.lines("arrived")), "messages posted:", len(twin.acts()))
