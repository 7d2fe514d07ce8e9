"""What a process does with its machine: tasks beside it, files, ports, processes, a terminal."""
