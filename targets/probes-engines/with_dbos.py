"""DBOS: each step by `run_step`, retried; the version is pinned, so that a newer program recovers what is under way."""

import os
import sys

sys.path.insert(0, os.environ["PROBES"])
import office
from dbos import DBOS, SetWorkflowID

ORDER = f"refund-{office.CHARGE}"
LIFE = os.environ["LIFE"]
RETRIED = {} if office.OFFER == "nothing" else {"retries_allowed": True, "max_attempts": 3, "interval_seconds": 0.2}


@DBOS.workflow()
def settle() -> list:
    def do(name: str, amount: int) -> dict:
        if name == "approval":
            return {"said": DBOS.recv("approval", timeout_seconds=30)}
        return DBOS.run_step({"name": name, **RETRIED}, office.perform, name, amount, DBOS.workflow_id)

    return office.drive(do)


def main() -> None:
    # One executor for each process that lives beside another, as its documentation says.
    executor = f"machine-{LIFE}" if os.environ["RIVALS"] else "local"
    DBOS(config={
        "name": "probes", "system_database_url": os.environ["ENGINE"], "log_level": "ERROR",
        "application_version": "1", "executor_id": executor, "run_admin_server": False,
    })  # fmt: skip
    DBOS.launch()
    with SetWorkflowID(ORDER):
        handle = DBOS.start_workflow(settle)
    if office.APPROVED_FIRST and LIFE == "1":
        DBOS.send(ORDER, "yes", "approval")
    try:
        office.say(*handle.get_result())
    except Exception as error:
        office.told(error)
    sys.stdout.flush()
    os._exit(0)


main()
