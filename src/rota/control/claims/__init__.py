"""Claims: an instance for somebody alone, for a while."""
