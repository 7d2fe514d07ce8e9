"""``gpulease verify``: a notebook in one plain kernel and with its cells placed, compared."""
