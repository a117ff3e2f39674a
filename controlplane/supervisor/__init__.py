"""Starts, watches and stops the processes of one machine's Concertina (`make up`)."""
