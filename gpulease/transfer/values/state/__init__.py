"""What belongs to the whole process and travels too: settings, seeds, log handlers."""
