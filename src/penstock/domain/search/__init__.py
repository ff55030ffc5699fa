"""Queries over stored records: filters, search, facets, suggestions and cursors."""
