"""What becomes of a Task: pure decisions about one, and the assignment of many to workers."""
