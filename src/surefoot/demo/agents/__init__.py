"""The agents under test: programs as a user would write them, which know nothing of the harness around them.

They are started as ``python -P -m agents.plain POLICY`` with this folder's parent on the path, so that the plain ones
do not import Surefoot at all and the durable one imports nothing of it but its public names.
"""
