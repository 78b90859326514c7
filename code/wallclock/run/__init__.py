"""From settings to records: cells planned, run in a process each, resumed."""
