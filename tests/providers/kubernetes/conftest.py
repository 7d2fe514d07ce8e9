"""What the tests of the Kubernetes provider share."""

import ssl
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def no_certificates_of_the_machine() -> Iterator[None]:
    """Load none: nobody here shows one, and they take most of what a client does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: None)
        yield
