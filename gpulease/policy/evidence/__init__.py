"""What was seen of a lease or a device, judged: used or idle, fit to be given out or not."""
