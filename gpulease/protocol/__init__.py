"""The words that gpulease's processes say to each other.

Names, versions and JSON shapes of six conversations, so that both ends read one page:

* **REST** between any client and the lease service (``LeaseView`` and the lists of it), and
  **events**: ``api/events`` websocket, service to a page or to one notebook server (``service``);
* **bus**: Unix socket of ``gpulease.lab``, notebook server to its kernels (``bus``);
* **supervisor channel**: ``api/leases/{id}/supervisor`` websocket, lease supervisor to service
  (``supervisor``);
* **control**: CurveZMQ socket of the supervisor, home kernel to lease (``control``);
* **agent**: ``POST api/agents/batches``, a GPU node's agent to the service (``agents``).

``agents``, ``asks`` and ``reports`` are checked where they arrive; ``names`` are versions and names
of environment variables.

The seventh conversation, variables between home kernel and companion, belongs to
``gpulease.transfer``.
Times are ISO 8601 strings in UTC with offset, durations are seconds, sizes are bytes.
"""
