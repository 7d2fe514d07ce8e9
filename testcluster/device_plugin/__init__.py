"""A GPU device plugin with pretend devices, registered with the real kubelet.

`python -m testcluster.device_plugin DEVICES ALLOCATIONS`: DEVICES is the JSON file of
`testcluster.devices`, read again whenever it changes; ALLOCATIONS gets a line for each grant.
"""
