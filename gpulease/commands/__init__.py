"""The commands of ``gpulease``, each in a file of its own; ``cli`` reads which one is meant."""
