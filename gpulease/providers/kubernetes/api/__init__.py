"""What the API server is asked and what it answers: client, lists and watches, deletes, rights."""
