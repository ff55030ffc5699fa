"""Celery: a broker's messages wake workers up."""
