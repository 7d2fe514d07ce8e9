"""REST and websockets: who may call what, what is read, what is answered."""
