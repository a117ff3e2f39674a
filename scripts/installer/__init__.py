"""Sets a clone up, step by step, and hands over to what was asked for. Standard library only.

It runs on the system's Python 3.11, before there is a virtual environment. A step whose inputs
have not changed since its stamp was written is skipped, so a second run costs milliseconds.
"""
