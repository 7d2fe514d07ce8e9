"""Reservations of the site: made, checked, shown and watched."""
