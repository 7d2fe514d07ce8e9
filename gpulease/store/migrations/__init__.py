"""The alembic environment: how the tables came to be, step by step."""
