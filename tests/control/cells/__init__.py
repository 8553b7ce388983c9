"""Hub and cells."""
