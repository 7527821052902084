"""A mail by SMTP: its Message-ID is made of the key, so the mailbox that keeps a copy can tell whether it was sent.

SMTP itself promises nothing about repeats. A folder of sent mail (here a maildir; elsewhere an IMAP search for the
header) makes it a receiver that can be asked.
"""

import asyncio
import mailbox
import os
import signal
import smtplib
import sys
from email.message import EmailMessage

from aiosmtpd.handlers import Mailbox
from aiosmtpd.smtp import SMTP

from surefoot import Attempt, Surefoot, effect, receivers, workflow


@effect(receivers.get("smtp").with_(asks="Message-ID"), identity="mail:{order}")
def send_mail(attempt: Attempt, order: str, to: str) -> str:
    mail = EmailMessage()
    mail["Message-ID"] = message_id = f"<{attempt.key}@acme.test>"
    mail["From"], mail["To"], mail["Subject"] = "agent@acme.test", to, f"Order {order} has left"
    mail.set_content("It is on its way.")
    with smtplib.SMTP("127.0.0.1", int(sys.argv[1]), timeout=attempt.timeout) as server:
        server.send_message(mail)
        if sys.argv[2] == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
    return message_id


@send_mail.lookup
def find_mail(attempt: Attempt, order: str, to: str) -> str | None:
    print("searching the sent mail")
    message_id = f"<{attempt.key}@acme.test>"
    return next((message_id for mail in mailbox.Maildir("sent") if mail["Message-ID"] == message_id), None)


@workflow
def ship(order: str) -> str:
    return send_mail(order, "ann@customer.test")


async def two_lives() -> None:
    loop = asyncio.get_running_loop()
    async with await loop.create_server(lambda: SMTP(Mailbox("sent")), "127.0.0.1", 0) as server:
        port = str(server.sockets[0].getsockname()[1])
        for life in ("dies", "lives"):
            agent = await asyncio.create_subprocess_exec(sys.executable, __file__, port, life)
            print("the agent", life, "with status", await agent.wait(), flush=True)
    print("mails:", len(mailbox.Maildir("sent")))


if len(sys.argv) == 3:  # a life of the agent
    with Surefoot("agent.db") as sf:
        print("mail sent:", sf.run(ship, "A-7", id="ship-A-7").endswith("@acme.test>"))
else:
    asyncio.run(two_lives())
