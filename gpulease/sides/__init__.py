"""What is the same in the home kernel and in the companion."""
