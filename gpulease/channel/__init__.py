"""One way in which gpulease's processes talk: calls, their answers, and messages without an answer.

``conversation`` is one end of it without any I/O.  Two drivers run that: ``threaded`` (any thread
may call) and ``asynchronous`` (on an event loop).  Carriers bring the messages across, and are
imported where they are used: ``unix`` and ``pair`` (JSON, one object a line), ``curve`` (CurveZMQ),
``websocket``.

A message is a JSON object.  ``{"id": n, "call": name, "args": {...}}`` asks, without ``id`` it
tells; ``{"id": n, "ok": ...}`` and ``{"id": n, "problem": RFC 9457 object}`` answer;
``{"cancel": n}`` takes a call back.  Everything else is pushed to whoever owns the other end.  What
is said stands in ``gpulease.protocol``.
"""
