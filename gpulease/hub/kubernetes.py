"""KubeSpawner for a hub with GPU leases: notebook servers without a GPU, at once.

Two seams of KubeSpawner are used: the pod as it is about to be sent (the guard looks at it, and it
gets the names by which the lease service knows its server), and the settings of a spawner between
two spawns.  KubeSpawner and JupyterHub merge the overrides of profiles and groups into the
spawner's own settings in place, and a spawner outlives a spawn that failed; so settings are taken
as configured and put back.  What a GPU looks like in a manifest is ``gpulease.hub.guard``'s.
Needs the package ``jupyterhub-kubespawner``; ``gpulease.hub`` imports this module only where it is
used.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Mapping, MutableSequence, MutableSet, Sequence
from dataclasses import replace
from typing import Any

from kubespawner import KubeSpawner
from kubespawner.objects import make_pod
from traitlets import Enum, HasTraits, List, Unicode, default

from gpulease.hub import compat, guard, guard_lines, guard_list
from gpulease.hub.guard_shape import Rules
from gpulease.hub.spawner import GPULeaseSpawnerMixin
from gpulease.hub.user_namespaces import FurnishError, furnish
from gpulease.protocol import labels


class Settings:
    """A spawner's configurable settings as they were at one moment."""

    def __init__(self, spawner: HasTraits) -> None:
        self._values = {
            name: _copied(getattr(spawner, name)) for name in spawner.trait_names(config=True)
        }

    def restore(self, spawner: HasTraits) -> list[str]:
        """Put every changed setting back; return the names of those that had changed."""
        changed = [
            name for name, value in self._values.items() if not _same(getattr(spawner, name), value)
        ]
        for name in changed:
            setattr(spawner, name, _copied(self._values[name]))
        return changed


def _copied(value: Any) -> Any:
    """Copy containers all the way down, and nothing else: functions and objects stay themselves.

    (``copy.deepcopy`` would copy a bound method's object, that is the spawner, with its database.)
    """
    if isinstance(value, tuple):  # a named one, too
        return tuple.__new__(type(value), map(_copied, value))
    if not isinstance(value, Mapping | MutableSequence | MutableSet):
        return value
    made = _shallow(value)
    if isinstance(value, Mapping):
        for key in made:
            made[key] = _copied(made[key])
    elif isinstance(value, MutableSequence):
        for index, item in enumerate(made):
            made[index] = _copied(item)
    return made


def _shallow(value: Any) -> Any:
    """Return another container with the same items, of the same type where it can be."""
    if isinstance(value, dict | list | set):
        return copy.copy(value)
    if hasattr(value, "copy"):
        return value.copy()  # such as a dict of what os.environ holds
    return dict(value) if isinstance(value, Mapping) else copy.copy(value)


def _same(one: Any, other: Any) -> bool:
    return one is other or bool(one == other)


class GPULeaseSpawner(GPULeaseSpawnerMixin, KubeSpawner):
    """KubeSpawner whose servers have no GPU and can lease one.

    All of KubeSpawner works as ever: profiles, named servers, a namespace for each user, internal
    SSL, options forms, hooks.  ``c.KubeSpawner.*`` keeps its effect.
    """

    modify_pod_hook: Any  # KubeSpawner's
    user_namespace_labels: Any  # KubeSpawner's

    gpulease_guard = Enum(
        ["refuse", "strip"],
        default_value="refuse",
        config=True,
        help="""What happens to a server whose pod would have, or lead to, a GPU: ``refuse`` does
        not start it and tells why, ``strip`` takes the GPU out and logs it.""",
    )
    gpulease_guard_exempt = List(
        Enum(sorted(guard.RULES)),
        config=True,
        help="Rules of the guard that do not apply here, by name.",
    )
    gpulease_gpu_resources = List(
        Unicode(),
        config=True,
        help="More names of resources that are GPUs, beside those known (`*` matches anything).",
    )
    gpulease_gpu_node_keys = List(
        Unicode(),
        config=True,
        help="More labels and taints that mark nodes with GPUs (`*` matches anything).",
    )
    gpulease_allow = List(
        Unicode(),
        config=True,
        help="""What servers may have beside what is on the guard's own list, as lines such as
        ``hostPath /srv/data`` or ``resource example.com/fuse`` (`*` stands for anything).
        `gpulease doctor --hub` prints those that your profiles need.""",
    )
    gpulease_network_tools = Unicode(
        guard_list.BLOCKER_IMAGE,
        config=True,
        help="Image of the chart's init container block-cloud-metadata (`*` stands for anything).",
    )
    gpulease_instance = Unicode(
        labels.APP,
        config=True,
        help="Tells the pods of this hub and service from those of another in the same cluster.",
    )
    gpulease_namespace = Unicode(
        config=True,
        help="With a namespace for each user: where what leases need there is copied from; by"
        " default the hub's own namespace.",
    )

    @default("gpulease_namespace")
    def _default_gpulease_namespace(self) -> str:
        return labels.own_namespace()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._configured: Settings | None = None
        # As configured: no profile, group or hook of one spawn opens the guard for its own pod.
        self._guard = self._guard_now()
        # What the site has configured for all servers is on the list as well.
        self._seeds: tuple[str, ...] = ()
        # The hook of this very spawn, whoever set it: the site, a group, a profile.
        self._site_hook: Callable[[Any, Any], Any] | None = None

    def clear_state(self) -> None:
        """Begin or end a spawn with the settings as they were configured.

        The hub calls it before authenticator hooks, group overrides, user options and profiles
        change them, and after the server's end.
        """
        if self._configured is None:
            self._configured = Settings(self)
            self._seeds = seeds(self)
        elif changed := self._configured.restore(self):
            self.log.debug("Undid what the last spawn changed: %s", ", ".join(changed))
        super().clear_state()

    async def load_user_options(self) -> None:
        """Apply the profile, then put the guard after whichever hook is set now."""
        await super().load_user_options()
        if self.modify_pod_hook is not GPULeaseSpawner._guarded:
            self._site_hook = self.modify_pod_hook
            self.modify_pod_hook = GPULeaseSpawner._guarded
        if self.enable_user_namespaces:
            # The admission policies go by this label, and so does what the hub may do at all.
            instance = {labels.INSTANCE: labels.label_value(self.gpulease_instance)}
            self.user_namespace_labels = {**instance, **self.user_namespace_labels}
            labels_wanted = self._expand_all(self.user_namespace_labels)
            self._refuse(guard.inspect_namespace_labels(labels_wanted))

    async def _ensure_namespace(self) -> None:
        """Make the user's namespace, and put into it what leases need there.

        Without that the server starts all the same, and leases are refused by the API server.
        """
        await super()._ensure_namespace()
        try:
            copied = await furnish(
                self.api.api_client,
                self.gpulease_namespace,
                self.namespace,
                seconds=self.k8s_api_request_timeout,
            )
        except FurnishError as error:
            self.log.error(  # noqa: TRY400 - the sentence says it all
                "No GPU lease can start in namespace %s: %s Set userNamespaces.enabled in"
                " gpulease's chart and look with `gpulease doctor`; the next start of the server"
                " tries again.",
                self.namespace,
                error,
            )
        else:
            self.log.debug("Namespace %s has %s", self.namespace, ", ".join(copied))

    async def _guarded(self, pod: Any) -> Any:
        """Run the site's hook, then inspect the final manifest and name the server in it.

        Raises:
            SpawnException: the pod would have a GPU (an ``HTTPError`` before JupyterHub 6).
        """
        pod = await self._hooked(pod)
        sent = self._as_sent(pod)
        mode, _rules = self._guard
        if self._guard_now() != self._guard:
            self.log.warning(
                "A profile, group or hook changed the guard for the pod of %s: this does not count."
                " Set it as c.GPULeaseSpawner.gpulease_guard..., for all servers.",
                self._log_name,
            )
        rules = self.gpulease_rules()
        clean = sent
        if mode == "strip":
            clean, found = guard.strip(sent, rules)
            for finding in found:
                self.log.warning("Took out of the pod of %s: %s", self._log_name, finding)
        self._refuse(guard.inspect(clean, rules))
        clean = guard.shield(clean)
        if clean["spec"] != sent["spec"]:
            pod.spec = clean["spec"]  # as plain dicts, which is what is sent in the end
        self._name(pod, clean.get("metadata", {}))
        return pod

    async def _hooked(self, pod: Any) -> Any:
        """Return the pod after the site's own hook."""
        if self._site_hook is None:
            return pod
        pod = self._site_hook(self, pod)
        return await pod if inspect.isawaitable(pod) else pod

    async def gpulease_look(self, pod: Any) -> tuple[guard.Manifest, tuple[guard.Violation, ...]]:
        """Return a pod as it would be sent, and what the guard would say; nothing is sent."""
        sent = self._as_sent(await self._hooked(pod))
        return sent, guard.inspect(sent, self.gpulease_rules())

    def gpulease_beyond_the_list(self, sent: guard.Manifest) -> list[str]:
        """Return the lines of a pod that are not on the list by themselves."""
        image = self.gpulease_network_tools
        found = guard_lines.unlisted(sent["spec"], blocker_image=image)
        return [line.ways[0] for line in found]

    def gpulease_rules(self) -> Rules:
        """Return what the guard goes by, with what the site has configured for all servers."""
        _mode, rules = self._guard
        return replace(rules, allow=(*rules.allow, *self._seeds))

    def _guard_now(self) -> tuple[str, Rules]:
        """Return mode and rules of the guard as the settings are at this moment."""
        return self.gpulease_guard, Rules(
            resources=tuple(self.gpulease_gpu_resources),
            node_keys=tuple(self.gpulease_gpu_node_keys),
            exempt=frozenset(self.gpulease_guard_exempt),
            allow=tuple(self.gpulease_allow),
            blocker_image=self.gpulease_network_tools,
        )

    def _as_sent(self, pod: Any) -> guard.Manifest:
        """Return the pod as the API server will read it, with Kubernetes' own names."""
        plain = self.api.api_client.sanitize_for_serialization(pod)
        manifest: guard.Manifest = json.loads(json.dumps(plain))
        return manifest

    def _refuse(self, found: Sequence[guard.Violation]) -> None:
        if not found:
            return
        for finding in found:
            self.log.error("Refused the pod of %s: %s", self._log_name, finding)
        raise compat.spawn_refused(
            _told(found),
            reason="gpu_in_server",
            log_message="; ".join(str(finding) for finding in found),
        )

    def _name(self, pod: Any, metadata: Mapping[str, Any]) -> None:
        """Write last by what the lease service knows whose server this is: no hook can forge it."""
        pod.metadata.annotations = {
            **(metadata.get("annotations") or {}),
            labels.USER: self.user.name,
            labels.SERVER: self.name,
        }
        pod.metadata.labels = {
            **(metadata.get("labels") or {}),
            labels.INSTANCE: labels.label_value(self.gpulease_instance),
        }


def _told(found: Sequence[guard.Violation]) -> str:
    """Return what the student reads."""
    known = next((each for each in found if each.rule != "not_listed"), None)
    if known is None:
        return (
            "Your server was not started: its settings ask for something that servers of this hub"
            " may not have. Choose another option, or tell your admin that this one asks for"
            f' "{found[0].what}", which gpulease does not allow yet.'
        )
    return (
        "Your server was not started: its settings would give it a GPU, and servers of this"
        " hub have none. Choose another option, or tell your admin that this one asks for"
        f" {known.what}. A GPU comes to the running notebook: put %%gpu at the top of a"
        ' cell, or press "Request GPU".'
    )


def seeds(spawner: KubeSpawner) -> tuple[str, ...]:
    """Return as lines how a spawner's own settings place its pods, and by which names they run."""
    in_order = spawner._sorted_dict_values  # noqa: SLF001 - both shapes that a site may use
    pod = make_pod(
        "seeds",
        cmd=None,
        port=1,
        image="",
        node_selector=spawner.node_selector,
        tolerations=in_order(spawner.tolerations),
        node_affinity_preferred=in_order(spawner.node_affinity_preferred),
        node_affinity_required=in_order(spawner.node_affinity_required),
        pod_affinity_preferred=in_order(spawner.pod_affinity_preferred),
        pod_affinity_required=in_order(spawner.pod_affinity_required),
        scheduler_name=spawner.scheduler_name,
        priority_class_name=spawner.priority_class_name,
        service_account=spawner._expand_all(spawner.service_account),  # noqa: SLF001
        extra_pod_config=spawner._expand_all(spawner.extra_pod_config),  # noqa: SLF001
        logger=spawner.log,
    )
    sent = json.loads(json.dumps(spawner.api.api_client.sanitize_for_serialization(pod)))
    found = (way for line in guard_lines.lines(sent["spec"]) for way in line.ways)
    return tuple(dict.fromkeys(way for way in found if way.split(" ")[0] in guard_list.SEEDED))
