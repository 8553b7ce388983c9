"""Who has which instance of a pool, whatever they have it for: one queue a pool, and one way to write it down."""
