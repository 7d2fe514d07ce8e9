"""A CurveZMQ connection that carries large blobs beside its messages, for one client.

Values and files travel here, in pieces that the receiver asks for.
"""
