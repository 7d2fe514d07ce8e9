"""The round: what is seen, what is planned of it, and what makes the world agree."""
