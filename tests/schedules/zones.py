"""Forty time zones, of all kinds: whole hours, half and quarter ones, changes at midnight, by half an hour, by two."""

from datetime import UTC, datetime

NAMES = """
UTC Europe/Berlin Europe/London Europe/Lisbon Europe/Athens Europe/Chisinau Europe/Moscow America/New_York
America/Chicago America/Denver America/Los_Angeles America/St_Johns America/Halifax America/Havana America/Nuuk
America/Scoresbysund America/Santiago America/Sao_Paulo America/Asuncion America/Caracas Africa/Cairo
Africa/Casablanca Africa/Lagos Asia/Beirut Asia/Jerusalem Asia/Gaza Asia/Tehran Asia/Kolkata Asia/Kathmandu
Asia/Tokyo Australia/Sydney Australia/Adelaide Australia/Lord_Howe Pacific/Auckland Pacific/Chatham
Pacific/Easter Pacific/Norfolk Pacific/Apia Antarctica/Troll Atlantic/Azores
"""
ZONES = tuple(NAMES.split())

SPRING = int(datetime(2026, 3, 7, tzinfo=UTC).timestamp())
"""From here, most clocks of the north go forward, and those of the south back, within a month."""
AUTUMN = int(datetime(2026, 10, 4, tzinfo=UTC).timestamp())
MONTH_SECONDS = 30 * 86_400

HOURS = ("0", "1", "2", "3", "4", "22", "23", "0-3", "1,3", "2-4", "*", "*/2", "*/3", "0-23/5", "0,12")
MINUTES = ("0", "1", "15", "30", "59", "0,30", "15,45", "5-20/5", "*/20", "*/7", "10-50/20")
DAYS = ("*", "*", "*", "*", "1", "8,29", "*/3", "1-7", "15-31", "31")
MONTHS = ("*", "*", "*", "*", "3", "3,4", "10,11", "MAR", "oct-nov", "*/2")
WEEKDAYS = ("*", "*", "*", "*", "0", "7", "SUN", "sat,sun", "1-5", "6-7", "*/2", "FRI")
