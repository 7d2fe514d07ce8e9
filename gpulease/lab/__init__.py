"""The Jupyter server extension: one event channel, the local companions, the kernels' bus."""
