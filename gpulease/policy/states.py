"""The fixed sets of words: states of a lease, why it waits or ends, what the evidence says."""

from __future__ import annotations

from enum import StrEnum


class LeaseState(StrEnum):
    """States of a lease; the transitions stand in ``policy.lifecycle``."""

    QUEUED = "queued"
    STARTING = "starting"
    ACTIVE = "active"
    WARNED = "warned"
    DRAINING = "draining"
    ENDED = "ended"


class EndReason(StrEnum):
    """Why a lease ended; exactly one on every ended lease."""

    RETURNED = "returned"
    IDLE = "idle"
    PREEMPTED = "preempted"
    EXPIRED = "expired"
    WINDOW_OVER = "window_over"
    WITHDRAWN = "withdrawn"
    DENIED = "denied"
    FAILED = "failed"
    SERVER_GONE = "server_gone"
    FORCED = "forced"


class WaitReason(StrEnum):
    """Why a lease is not active yet, or waits again."""

    NO_CAPACITY = "no_capacity"
    CAPACITY_TAKEN = "capacity_taken"
    USER_LIMIT = "user_limit"
    HELD = "held"
    QUARANTINED = "quarantined"
    SERVER_STARTING = "server_starting"
    STARTING = "starting"
    CONNECTING = "connecting"
    IMAGE_ERROR = "image_error"
    SUPERVISOR_FAILED = "supervisor_failed"


class Verdict(StrEnum):
    """What the evidence says about a lease; first match of ``policy.evidence.idleness`` wins."""

    BUSY = "busy"
    QUIET = "quiet"
    IDLE = "idle"
    UNKNOWN = "unknown"


class EvidenceLevel(StrEnum):
    """How finely a pool's devices can attribute use."""

    PROCESS = "process"
    DEVICE = "device"
    CELLS = "cells"


class DevicesBy(StrEnum):
    """How a lease names its devices in ``CUDA_VISIBLE_DEVICES``; the values are the document's."""

    UUID = "uuid"
    INDEX = "index"


class ClickRuns(StrEnum):
    """Which cells run on a GPU that was asked for by a click; the values are the document's."""

    AUTO = "auto"  # those that use a GPU library
    ALL = "all"
    NONE = "none"
