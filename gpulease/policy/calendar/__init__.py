"""Windows in time as people mean them, reservations of them, and iCalendar."""
