"""``%gpu auto``: which cells run on the GPU, by their text and what their names are."""
