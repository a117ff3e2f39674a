"""The pure decision engine: `plan.plan(snapshot, policies, now)`."""

#: recorded with every plan; rises when the same input may give another plan
VERSION = "1"
