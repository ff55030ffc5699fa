"""When imports begin: triggers, calendars, and what happens to each fire."""
