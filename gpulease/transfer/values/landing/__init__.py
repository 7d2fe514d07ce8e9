"""What arrived becomes the namespace's, all of it or nothing."""
