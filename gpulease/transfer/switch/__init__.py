"""Who owns the namespace: home, its companion, what moves between them and what cannot."""
