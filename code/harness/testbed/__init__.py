"""What a queue-driven service talks to, on loopback: a queue, an image store, a callback receiver.

Part of the benchmark, not of the service. `serving` runs a server in an event loop, a thread or a
process; by hand: `python -m harness.testbed sqs --port 9324 --journal queue.jsonl`.
"""
