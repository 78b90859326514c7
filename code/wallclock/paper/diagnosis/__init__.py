"""A diagnosis of one's own job: its words, its page, and its summary on a terminal."""
