"""The forms in which rows are handed out: each streams them into an open file."""
