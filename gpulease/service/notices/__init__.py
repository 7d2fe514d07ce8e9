"""What people are told by mail, webhook and message."""
