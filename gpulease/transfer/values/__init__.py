"""One namespace's values: found, grouped, packed, compared, staged and committed; no peer here."""
