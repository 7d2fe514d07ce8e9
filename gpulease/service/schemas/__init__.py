"""What is sent to the service and what it answers, as pydantic sees it."""
