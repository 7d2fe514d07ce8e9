"""What stays where it was made, and what stands for it on the other side."""
