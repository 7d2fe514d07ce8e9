"""The hubs of a service: their REST API, and who is asking."""
