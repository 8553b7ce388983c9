"""Attacks that must fail. Each test is named after what the attacker wants."""
