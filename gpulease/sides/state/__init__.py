"""State of the process that cells share beside their variables."""
