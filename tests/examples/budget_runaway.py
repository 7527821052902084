"""A budget: an agent that would go on for ever stops, as failed, before its next step, and stays so."""

from decimal import Decimal

from surefoot import Budget, BudgetExceeded, Surefoot, spend, step, workflow


@step
def ask_model(question: str) -> str:
    spend(tokens=400, money=Decimal("0.01"))
    return "I need to think more"


@workflow
def agent(question: str) -> str:
    answer = ""
    while "need" in answer or not answer:
        try:
            answer = ask_model(question)
        except Exception:
            print("an agent's loop may swallow errors; a budget is not one")
    return answer


with Surefoot("agents.db") as sf:
    for _ in range(2):
        try:
            sf.run(agent, "why?", id="q1", budget=Budget(tokens=2_000, money=Decimal("1.00"), wall=600))
        except BudgetExceeded as exceeded:
            print(f"{exceeded.limit}: {exceeded.used} used, {exceeded.allowed} allowed")
    print(sf.get("q1").status)
