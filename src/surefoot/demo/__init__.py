"""The incident matrix: one agent, thirty real kills, seven ways to remember, and what the world saw.

Nothing here is asked of the agent. The model and the world are processes of their own that record what they did
before they answer, and every figure is counted from those records. Run it with ``python -m surefoot.demo``.
"""
