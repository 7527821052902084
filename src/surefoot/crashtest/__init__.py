"""`surefoot crashtest`: kills any agent at each request that it makes, restarts it, and counts what really happened.

It knows agents as processes and services as ledgers; it never looks into an agent, nor into Surefoot's own runtime.
"""
