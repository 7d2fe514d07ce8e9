"""What people see of leases and may do to them."""
