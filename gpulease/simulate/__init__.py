"""Replays what people did, or what they might do, through the very same planner on a virtual clock.

Pure but for the files it is given: no service, no provider, no database.
"""
