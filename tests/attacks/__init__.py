"""What an attacker wanted, and did not get. Each test is named after that."""
