"""What is seen of pods, nodes and events, and what it means."""
