"""The bus of ``gpulease.lab``, notebook server to its kernels (Unix socket, mode 0600, JSON lines).

The kernel opens with
``{"hello": kernel_id}`` and gets
``{"event": "snapshot", "leases": [...], "classes": [...], "sticky": [kernel ids]}``,
then ``{"event": "lease", "lease": ...}``, ``{"event": "classes", ...}`` and
``{"event": "link", "up": bool}`` as they come.  Calls are
``{"id": n, "call": name, "args": {...}}``, answered by ``{"id": n, "ok": ...}`` or
``{"id": n, "problem": RFC 9457 object}``.  Calls: ``ask`` (AskBody -> LeaseView),
``lease`` (lease_id -> LeaseView, as the service has it), ``end`` (lease_id, force), ``keep``
(lease_id), ``connection`` (lease_id, client_key -> ConnectionView), ``leases``,
``cell`` (busy: bool; no answer needed: which kernel ran a cell last), ``sticky`` (on: bool; no
answer needed: a restarted kernel reads in the snapshot that its cells ran on the GPU).
``environment`` (Environment; no answer needed: what the kernel runs, after each snapshot).
A page's ask names no kernel: on the bus its ``kernel_id`` is the kernel that ran a cell last
when the lease became active.  A ``grant`` never goes over the bus.
"""
