"""CSV: huge files, cut where records begin, and read chunk by chunk."""
