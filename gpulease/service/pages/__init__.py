"""The service's pages, in the hub's own look.

A page's frame holds no data.  Every figure comes to the browser by the same REST and events that
everybody else uses, so a page can do nothing that the API does not allow.
"""

from gpulease.service.pages.frames import Site
from gpulease.service.pages.routes import PageReader, handlers

__all__ = ["PageReader", "Site", "handlers"]
