"""Would the API server take a pod of each class?  Asked ahead by dry run, so that Health says it.

Without it a missing RuntimeClass is found by the first person who asks for a GPU.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from gpulease.looking import keep_looking
from gpulease.policy.model import GPUClass
from gpulease.providers.kubernetes.api.client import Client, ClientError
from gpulease.providers.kubernetes.api.namespaces import plain
from gpulease.providers.kubernetes.api.watch import key_of
from gpulease.providers.kubernetes.asks.ask import ask_of
from gpulease.providers.kubernetes.checkup.pods import refusal, sample
from gpulease.providers.kubernetes.manifests.manifest import PodSettings
from gpulease.providers.kubernetes.observed.cluster import Cluster

log = logging.getLogger(__name__)

#: Seconds between two looks: as a rule, and while something is wrong that may be mended now.
_EVERY, _SOON = 300.0, 15.0
#: What the API server misses before it looks at a pod's image, and what mends it.
_MISSING = (
    (re.compile("RuntimeClass"), "Make that RuntimeClass (the GPU operator does), or change"
     " `runtime_class` of the class or KubernetesSettings.runtime_class."),
    (re.compile("PriorityClass"), "Run helm upgrade gpulease, or change `priority_class` of the"
     " class or KubernetesSettings.priority_class."),
    (re.compile("service ?account", re.IGNORECASE), "Run helm upgrade gpulease."),
)  # fmt: skip
_ELSE = "`gpulease doctor` says more."


class ClassCheck:
    """Asks again and again; ``problems`` is what it found last, a sentence for each reason.

    Args:
        namespaces: of notebook servers, by name or pattern.
        classes: returns the classes on offer.
        images: returns the images that courses have of their own.
    """

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        settings: PodSettings,
        namespaces: Sequence[str],
        *,
        classes: Callable[[], Sequence[GPUClass]],
        images: Callable[[], Sequence[str]],
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._settings = settings
        self._plain = plain(namespaces)
        self._classes = classes
        self._images = images
        self._seen: tuple[GPUClass, ...] = ()
        self._seen_images: tuple[str, ...] = ()
        self._changed = asyncio.Event()
        self.problems: tuple[str, ...] = ()

    def offered(self, classes: Sequence[GPUClass]) -> None:
        """Look soon where other classes or images are on offer than at the last look."""
        if (tuple(classes), tuple(self._images())) != (self._seen, self._seen_images):
            self._changed.set()

    async def run(self) -> None:
        """Look, until cancelled."""
        await keep_looking(
            self.look,
            self._changed,
            every=lambda: _SOON if self.problems else _EVERY,
            log=log,
            failed="whether classes' pods would be taken is not known",
            away=(ClientError,),
        )

    async def look(self) -> None:
        """Offer a pod of each class and of each image of a course; ``problems`` is what is wrong.

        Raises:
            ClientError: the API server does not answer.
        """
        self._seen, self._seen_images = tuple(self._classes()), tuple(self._images())
        servers = list(self._cluster.pods.all_servers())
        where = next((key_of(each)[0] for each in servers), next(iter(self._plain), ""))
        kinds: dict[PodSettings, list[str]] = {}
        for each in self._seen:
            kinds.setdefault(self._settings_of(each), []).append(f"class {each.name}")
        for image in self._seen_images:
            kinds.setdefault(replace(self._settings, image=image), []).append(f"image {image}")
        found = []
        for settings, names in kinds.items() if where else ():
            body = sample(settings, where, [each for each in servers if key_of(each)[0] == where])
            said = await refusal(self._client, body, where)
            step = next((step for pattern, step in _MISSING if pattern.search(said)), "")
            # Without any server the image is not known yet, and a full quota is no fault.
            known = bool(body["spec"]["containers"][0]["image"]) and "exceeded quota" not in said
            if said and (step or known):
                what = ", ".join(names)
                found.append(f"the cluster takes no pod of {what}: {said}. {step or _ELSE}")
        self.problems = tuple(found)

    def _settings_of(self, gpu_class: GPUClass) -> PodSettings:
        ask = ask_of(gpu_class)
        return replace(
            self._settings,
            image=ask.image or self._settings.image,
            runtime_class=ask.runtime_class or self._settings.runtime_class,
            priority_class=ask.priority_class or self._settings.priority_class,
        )
