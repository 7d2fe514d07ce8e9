"""The suite mirrors the package: tests/<room>/ tests gpulease/<room>/ against real parts."""
