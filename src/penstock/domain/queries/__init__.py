"""What a client may ask of served records, and how far it has read."""
