"""The loader in loops of others: each file is a page, run by tests."""
