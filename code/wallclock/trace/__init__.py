"""`wallclock trace`: runs a program unchanged, and says where its wall time goes.

`command` runs it, `inside` is what counts in its processes, `collect` makes a `record.Trace` of
the counters. `page` tells it.
"""
